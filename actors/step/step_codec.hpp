#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "actors/step/step_plan.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The number that every encoded plan and result begins with. Raised when step.capnp changes in a
/// way that an older reader would misread; other numbers are refused.
inline constexpr std::uint32_t step_protocol = 4;

/// Writes plans and results for the step plane as one framed Cap'n Proto message each (step.capnp).
/// An encoder keeps its buffers: after the first few messages it allocates nothing. One thread at a
/// time.
class StepEncoder {
 public:
  /// Returns the bytes of `plan`, owned by the encoder and valid until its next call. Errors:
  /// invalid_argument if a list is longer than the format holds (2^29 entries) or a token's
  /// alternatives are not as many ids as values; resource_exhausted if memory is out.
  Result<std::span<const std::byte>> encode(const StepPlan& plan);
  /// The same for a result.
  Result<std::span<const std::byte>> encode(const StepResult& result);

 private:
  template <class Fill>
  Result<std::span<const std::byte>> write(Fill&& fill);

  std::vector<std::uint64_t> scratch_;  ///< the message's first segment; zero outside `write`
  std::vector<std::uint64_t> message_;  ///< segment table and segments, as sent
};

/// Reads what a StepEncoder wrote. `bytes` may have any alignment (a message not aligned to 8 is
/// copied once) and is not referred to afterwards. Errors: corrupt_data if the bytes are not a
/// message, or its columns contradict each other; unsupported if it has another protocol number.
/// Memory use stays within a constant times the number of bytes, whatever they are. Whether the
/// plan fits its sequences is not checked: only the worker knows their state.
Result<StepPlan> decode_plan(std::span<const std::byte> bytes);
/// Decodes a StepResult; errors as for decode_plan.
Result<StepResult> decode_result(std::span<const std::byte> bytes);

}  // namespace troupe
