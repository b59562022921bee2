#include "runtime/node/visible_devices.hpp"

#include <sstream>
#include <vector>

#include <fmt/ranges.h>

namespace troupe {

Result<std::string> visible_devices(std::span<const std::int32_t> ids, const char* inherited) {
  if (inherited == nullptr) return fmt::format("{}", fmt::join(ids, ","));
  std::vector<std::string> seen;
  std::istringstream list{std::string(inherited)};
  for (std::string one; std::getline(list, one, ',');) seen.push_back(one);
  std::vector<std::string> chosen;
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= seen.size()) {
      return fail(ErrorCode::invalid_argument,
                  "its device {} is not among those that the agent sees: CUDA_VISIBLE_DEVICES is "
                  "'{}'",
                  id, inherited);
    }
    chosen.push_back(seen[static_cast<std::size_t>(id)]);
  }
  return fmt::format("{}", fmt::join(chosen, ","));
}

}  // namespace troupe
