#include "runtime/object/copy_table.hpp"

#include <algorithm>

namespace troupe {

void CopyTable::unlink(Number object, const Copy& copy) {
  const auto held = held_.find(store_at(copy.endpoint));
  if (held == held_.end()) return;
  held->second.erase(object);
  if (held->second.empty()) held_.erase(held);
}

void CopyTable::add(Number object, Copy copy) {
  auto& copies = copies_[object];
  std::erase_if(copies, [&](const Copy& other) {
    const bool is_same_place = other.locality == copy.locality;
    if (is_same_place) unlink(object, other);
    return is_same_place;
  });
  held_[store_at(copy.endpoint)].insert(object);
  copies.push_back(std::move(copy));
}

bool CopyTable::complete(Number object, StoreId holder) {
  const auto found = copies_.find(object);
  if (found == copies_.end()) return false;
  for (Copy& copy : found->second) {
    if (store_at(copy.endpoint) != holder) continue;
    copy.is_complete = true;
    return true;
  }
  return false;
}

bool CopyTable::remove(Number object, StoreId holder) {
  const auto found = copies_.find(object);
  if (found == copies_.end()) return false;
  const auto removed = std::erase_if(found->second, [&](const Copy& copy) {
    const bool is_its = store_at(copy.endpoint) == holder;
    if (is_its) unlink(object, copy);
    return is_its;
  });
  if (found->second.empty()) copies_.erase(found);
  return removed > 0;
}

std::vector<std::string> CopyTable::forget(Number object) {
  std::vector<std::string> endpoints;
  const auto found = copies_.find(object);
  if (found == copies_.end()) return endpoints;
  for (const Copy& copy : found->second) {
    unlink(object, copy);
    endpoints.push_back(copy.endpoint);
  }
  copies_.erase(found);
  return endpoints;
}

std::vector<CopyTable::Number> CopyTable::remove_peer(StoreId holder) {
  const auto held = held_.find(holder);
  if (held == held_.end()) return {};
  const std::vector<Number> objects(held->second.begin(), held->second.end());
  for (const Number object : objects) (void)remove(object, holder);
  return objects;
}

const Copy* CopyTable::find(Number object, const std::string& locality) const {
  const auto found = copies_.find(object);
  if (found == copies_.end()) return nullptr;
  const auto copy = std::ranges::find(found->second, locality, &Copy::locality);
  return copy == found->second.end() ? nullptr : &*copy;
}

std::vector<std::string> CopyTable::complete_copies(Number object) const {
  std::vector<std::string> endpoints;
  const auto found = copies_.find(object);
  if (found == copies_.end()) return endpoints;
  for (const Copy& copy : found->second) {
    if (copy.is_complete) endpoints.push_back(copy.endpoint);
  }
  return endpoints;
}

std::size_t CopyTable::count(Number object) const {
  const auto found = copies_.find(object);
  return found == copies_.end() ? 0 : found->second.size();
}

}  // namespace troupe
