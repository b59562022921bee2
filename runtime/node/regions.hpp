#pragma once

#include <map>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"
#include "runtime/memory/shared_memory.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// The named shared memory of one node (see ActorContext::shared_memory). Not synchronised.
class Regions {
 public:
  /// Returns a new descriptor of the region, which is made (zeroed) if it does not exist. Errors:
  /// invalid_argument if it exists with another size, or if `bytes` is 0.
  Result<UniqueFd> open(std::string_view name, std::size_t bytes);
  /// Forgets all regions whose names start with `prefix`.
  void release(std::string_view prefix);

 private:
  std::map<std::string, SharedMemory, std::less<>> regions_;
};

}  // namespace troupe
