#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "models/sampler/sampling_params.hpp"

namespace troupe {

/// The result for one row of logits: the id that was sampled or scored, and its scores if
/// requested. Ranks exchange these in records of equal length.
struct RowChoice {
  std::int32_t id = -1;
  bool failed = false;  ///< the logits were not finite
  TokenLogprobs scores;
};

/// The length of a record with room for `alternatives` best tokens.
std::size_t record_bytes(std::int32_t alternatives);

/// `record` must have room for the choice's alternatives.
void write_record(const RowChoice& choice, std::span<std::byte> record);
RowChoice read_record(std::span<const std::byte> record);

}  // namespace troupe
