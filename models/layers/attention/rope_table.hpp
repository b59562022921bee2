#pragma once

#include <cstdint>

#include "models/config/model_config.hpp"
#include "parallel/device/tensor.hpp"

namespace troupe {

/// The table for the rotation in AttentionOps::norm_rope_store: [positions, head_dim] f32, for each
/// position the cosines of its head_dim / 2 angles, then their sines. Only the first `rotated` / 2
/// angles (0: all) are rope's; the others are zero. The angles are rounded to f32
/// as in transformers (its inverse frequencies and their multiples are f32), because at long
/// contexts that rounding is visible; cosine and sine are then taken in double. A row depends on
/// its position alone, never on the length of a sequence; with LongRopeScaling on `positions`, too.
/// At most `threads` threads (at least 1) compute it.
HostTensor rope_table(const RopeConfig& rope, std::int64_t positions, std::int64_t head_dim,
                      std::int64_t rotated = 0, int threads = 1);

}  // namespace troupe
