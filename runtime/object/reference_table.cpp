#include "runtime/object/reference_table.hpp"

namespace troupe {

bool ReferenceTable::take_local(Number object) {
  const auto found = objects_.find(object);
  if (found == objects_.end()) return false;
  found->second.is_local = true;
  return true;
}

bool ReferenceTable::drop_local(Number object) {
  const auto found = objects_.find(object);
  if (found == objects_.end()) return false;
  found->second.is_local = false;
  return forget_if_unused(found);
}

bool ReferenceTable::borrow(Number object, StoreId peer) {
  const auto found = objects_.find(object);
  if (found == objects_.end()) return false;
  if (++found->second.borrowers[peer] == 1) borrowed_[peer].insert(object);
  return true;
}

bool ReferenceTable::give_back(Number object, StoreId peer) {
  const auto found = objects_.find(object);
  if (found == objects_.end()) return false;
  const auto borrower = found->second.borrowers.find(peer);
  if (borrower == found->second.borrowers.end()) return false;
  if (--borrower->second > 0) return false;
  found->second.borrowers.erase(borrower);
  const auto of_peer = borrowed_.find(peer);
  of_peer->second.erase(object);
  if (of_peer->second.empty()) borrowed_.erase(of_peer);
  return forget_if_unused(found);
}

std::vector<ReferenceTable::Number> ReferenceTable::remove_peer(StoreId peer) {
  std::vector<Number> unused;
  const auto borrowed = borrowed_.extract(peer);
  if (borrowed.empty()) return unused;
  for (const Number object : borrowed.mapped()) {
    const auto found = objects_.find(object);
    found->second.borrowers.erase(peer);
    if (forget_if_unused(found)) unused.push_back(object);
  }
  return unused;
}

std::size_t ReferenceTable::borrowers(Number object) const {
  const auto found = objects_.find(object);
  return found == objects_.end() ? 0 : found->second.borrowers.size();
}

bool ReferenceTable::forget_if_unused(Objects::iterator found) {
  if (found->second.is_local || !found->second.borrowers.empty()) return false;
  objects_.erase(found);
  return true;
}

}  // namespace troupe
