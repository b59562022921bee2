#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "actors/step/step_plan.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The number that every encoded plan and result begins with. Raised when step.capnp changes in a
/// way that an older reader would misread; a peer with another number is refused.
inline constexpr std::uint32_t step_protocol = 3;

/// Writes plans and results for the step plane as one framed Cap'n Proto message each (step.capnp).
/// An encoder keeps its buffers: after the first few messages it allocates nothing. One thread at a
/// time.
class StepEncoder {
 public:
  /// The bytes of `plan`; they belong to the encoder and are valid until its next call. Errors:
  /// invalid_argument if a list is longer than the format holds (2^29 entries) or a token's
  /// alternatives are not as many ids as values; resource_exhausted if memory is out.
  Result<std::span<const std::byte>> encode(const StepPlan& plan);
  /// As above, for a result.
  Result<std::span<const std::byte>> encode(const StepResult& result);

 private:
  template <class Fill>
  Result<std::span<const std::byte>> write(Fill&& fill);

  std::vector<std::uint64_t> scratch_;  ///< zero outside `write`: the message's first segment
  std::vector<std::uint64_t> message_;  ///< segment table and segments, as sent
};

/// Reads what a StepEncoder wrote. `bytes` may have any alignment (a message that does not begin at
/// a multiple of 8 is copied once) and is not referred to afterwards. Errors: corrupt_data if the
/// bytes are not a message, or its columns contradict each other; unsupported if it is of another
/// protocol number. Whatever the bytes are, memory use stays within a constant times their number.
/// What the plan says of sequences is not checked: only the worker knows its state.
Result<StepPlan> decode_plan(std::span<const std::byte> bytes);
/// As decode_plan, for a result.
Result<StepResult> decode_result(std::span<const std::byte> bytes);

}  // namespace troupe
