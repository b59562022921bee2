#pragma once

#include <cstdint>
#include <span>

#include "models/ops/coded_panels.hpp"

namespace troupe {

/// The most experts that GPUs multiply as codes.
inline constexpr std::int64_t max_coded_experts = 1024;

/// The panels that each of these experts' matrices is held in, if GPUs multiply their codes: those
/// of 4 bits, whose scales are bf16 in the units. A matrix with a scale for each row has it in
/// every unit. From headers alone.
PanelChoice expert_panels(std::span<const StoredMatrix> experts, WeightEncoding encoding);

}  // namespace troupe
