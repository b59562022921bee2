#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/result.hpp"

namespace troupe {

/// Returns the CUDA_VISIBLE_DEVICES of a process that is to see only the devices `ids` of its node.
/// They count in `inherited`, the agent's own CUDA_VISIBLE_DEVICES, if that is set (not null).
/// invalid_argument for an id that is beyond it.
Result<std::string> visible_devices(std::span<const std::int32_t> ids, const char* inherited);

}  // namespace troupe
