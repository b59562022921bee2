#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// Cuts a row of layers into `stages` contiguous stages so that the costliest is as cheap as
/// possible: in a full pipeline its time is the time between two micro-batches. Every stage gets at
/// least one layer. Of equal cuts it takes the one whose earlier stages are as full as the
/// costliest allows, so that the last stage, which samples too, has the least. Other work of the
/// first and last stage counts as part of the first and last layer.
///
/// `layer_costs` in any unit, none negative, their sum below 2^63; 1 <= stages <= layers
/// (asserted). Pure: every rank that is given the same numbers gets the same cut.
std::vector<Slice> balance_stages(std::span<const std::int64_t> layer_costs, int stages);

}  // namespace troupe
