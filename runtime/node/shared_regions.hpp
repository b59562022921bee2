#pragma once

#include <mutex>
#include <string_view>

#include "runtime/node/regions.hpp"

namespace troupe {

/// The regions of a node whose actors are all in this process. Callable from any thread.
class SharedRegions {
 public:
  // As those of Regions.

  Result<UniqueFd> open(std::string_view name, std::size_t bytes, Regions::Holder holder) {
    const std::lock_guard lock(mutex_);
    return regions_.open(name, bytes, holder);
  }
  void release(std::string_view prefix) {
    const std::lock_guard lock(mutex_);
    regions_.release(prefix);
  }
  void remove(Regions::Holder holder) {
    const std::lock_guard lock(mutex_);
    regions_.remove(holder);
  }

 private:
  std::mutex mutex_;
  Regions regions_;
};

}  // namespace troupe
