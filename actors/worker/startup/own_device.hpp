#pragma once

#include <span>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// Returns a worker's GPU: the first of `placed`, the devices that the placement gave to its actor,
/// among the `usable` ones of this process. Errors: not_found, beginning with `place`.
Result<int> own_device(std::span<const int> placed, int usable, std::string_view place);

}  // namespace troupe
