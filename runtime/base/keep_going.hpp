#pragma once

#include <functional>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// Long work calls it repeatedly and gives up once it returns false. Null: the work never gives up.
using KeepGoing = std::function<bool()>;

/// Returns cancelled if the reading of `path` is to be given up.
inline Result<void> check_goes_on(const KeepGoing& keep_going, std::string_view path) {
  if (!keep_going || keep_going()) return {};
  return fail(ErrorCode::cancelled, "stopped while {} was read", path);
}

}  // namespace troupe
