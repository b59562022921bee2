#pragma once

#include <cstdint>
#include <vector>

#include "models/ops/ops.hpp"

namespace troupe {

/// Sequences of a pass, with block tables spread over the cache, and the slots that they write.
struct Sequences {
  std::vector<SequenceSpan> spans;
  std::vector<std::int32_t> numbers;  ///< of the spans
  std::vector<std::int32_t> table, positions, slots;
};

/// `rows` sequences of `context` tokens with one new token each, all with the same blocks before
/// `prefix`; or prompts of up to `context` tokens.
Sequences make_sequences(std::int64_t rows, std::int64_t context, std::int64_t prefix,
                         std::int32_t block_size, bool decode);

/// A tensor of `shape` on the device. Waits for the copy. Errors: those of allocate().
Result<DeviceTensor> uploaded(Ops& ops, const std::vector<std::int32_t>& values,
                              const Shape& shape);

}  // namespace troupe
