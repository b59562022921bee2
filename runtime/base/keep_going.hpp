#pragma once

#include <functional>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// Asked again and again by work that takes long: false gives it up. Null: it is not given up.
using KeepGoing = std::function<bool()>;

/// cancelled, if the reading of `path` is to be given up.
inline Result<void> check_goes_on(const KeepGoing& keep_going, std::string_view path) {
  if (!keep_going || keep_going()) return {};
  return fail(ErrorCode::cancelled, "stopped while {} was read", path);
}

}  // namespace troupe
