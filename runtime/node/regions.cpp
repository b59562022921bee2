#include "runtime/node/regions.hpp"

#include <utility>

namespace troupe {

Result<UniqueFd> Regions::open(std::string_view name, std::size_t bytes) {
  auto found = regions_.find(name);
  if (found == regions_.end()) {
    TROUPE_TRY(SharedMemory region, SharedMemory::create(bytes));
    found = regions_.emplace(name, std::move(region)).first;
  }
  const std::size_t existing = found->second.bytes().size();
  if (existing != bytes) {
    return fail(ErrorCode::invalid_argument,
                "shared memory '{}' has {} bytes, but {} are asked for", name, existing, bytes);
  }
  return found->second.duplicate_fd();
}

void Regions::release(std::string_view prefix) {
  std::erase_if(regions_, [&](const auto& region) {
    return std::string_view(region.first).starts_with(prefix);
  });
}

}  // namespace troupe
