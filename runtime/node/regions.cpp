#include "runtime/node/regions.hpp"

#include <utility>

namespace troupe {

Result<UniqueFd> Regions::open(std::string_view name, std::size_t bytes, Holder holder) {
  auto found = regions_.find(name);
  if (found == regions_.end()) {
    TROUPE_TRY(SharedMemory memory, SharedMemory::create(bytes));
    found = regions_.emplace(name, Region{std::move(memory), {}}).first;
  }
  Region& region = found->second;
  const std::size_t existing = region.memory.bytes().size();
  if (existing != bytes) {
    return fail(ErrorCode::invalid_argument,
                "shared memory '{}' has {} bytes, but {} are asked for", name, existing, bytes);
  }
  region.holders.insert(holder);
  held_[holder].emplace(name);
  return region.memory.duplicate_fd();
}

void Regions::release(std::string_view prefix) {
  for (auto found = regions_.lower_bound(prefix);
       found != regions_.end() && found->first.starts_with(prefix);) {
    forget(found++);
  }
}

void Regions::remove(Holder holder) {
  const auto held = held_.extract(holder);
  if (held.empty()) return;
  for (const std::string& name : held.mapped()) {
    const auto found = regions_.find(name);
    found->second.holders.erase(holder);
    if (found->second.holders.empty()) regions_.erase(found);
  }
}

void Regions::forget(All::iterator found) {
  for (const Holder holder : found->second.holders) {
    const auto held = held_.find(holder);
    held->second.erase(found->first);
    if (held->second.empty()) held_.erase(held);
  }
  regions_.erase(found);
}

}  // namespace troupe
