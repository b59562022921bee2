#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "runtime/base/result.hpp"
#include "runtime/memory/shared_memory.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// The named shared memory of one node (see ActorContext::shared_memory). Not synchronised.
class Regions {
 public:
  /// Names a process that has asked for regions; never reused.
  using Holder = std::uint64_t;

  /// Returns a new descriptor of the region, which is made (zeroed) if it does not exist. Errors:
  /// invalid_argument if it exists with another size, or if `bytes` is 0.
  Result<UniqueFd> open(std::string_view name, std::size_t bytes, Holder holder);
  /// Forgets all regions whose names start with `prefix`.
  void release(std::string_view prefix);
  /// The process has ended: forgets the regions that only it had asked for.
  void remove(Holder holder);
  std::size_t size() const { return regions_.size(); }

 private:
  struct Region {
    SharedMemory memory;
    std::set<Holder> holders;
  };
  using All = std::map<std::string, Region, std::less<>>;

  void forget(All::iterator found);

  All regions_;
  std::unordered_map<Holder, std::set<std::string, std::less<>>> held_;  ///< names
};

}  // namespace troupe
