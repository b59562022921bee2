#include "launcher/batch/duplicate_ids.hpp"

#include "runtime/base/hash.hpp"

namespace troupe {
namespace {

constexpr std::size_t first_slots = 1024;

}  // namespace

DuplicateIds::DuplicateIds() : slots_(first_slots) {}

bool DuplicateIds::insert(std::string_view name) {
  Hash hash = hash_128(name);
  if (hash == Hash{0, 0}) hash.first = 1;
  if ((size_ + 1) * 8 > slots_.size() * 7) grow();
  if (!insert_hash(hash)) return false;
  ++size_;
  return true;
}

bool DuplicateIds::insert_hash(const Hash& hash) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash.first & mask;; i = (i + 1) & mask) {
    if (slots_[i] == hash) return false;
    if (slots_[i] != Hash{0, 0}) continue;
    slots_[i] = hash;
    return true;
  }
}

void DuplicateIds::grow() {
  std::vector<Hash> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Hash& hash : old) {
    if (hash != Hash{0, 0}) insert_hash(hash);
  }
}

}  // namespace troupe
