#pragma once

#include <span>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// The GPU of a worker: the first of `placed`, the devices that the placement gave to its actor, of
/// the `usable` ones that this process can use. Errors: not_found, beginning with `place`.
Result<int> own_device(std::span<const int> placed, int usable, std::string_view place);

}  // namespace troupe
