#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/object/object_id.hpp"

namespace troupe {

/// Who has references to the objects of one process: the process itself, and others, which count
/// their registrations (a process may begin a new one before the owner hears of the end of the one
/// before). An object whose last reference is gone is forgotten, and its number returned to be
/// freed. All operations cost O(1), the end of a process one for each object that it had. Not
/// synchronised.
class ReferenceTable {
 public:
  using Number = std::uint64_t;

  /// A new object, to which this process has references.
  void add(Number object) { objects_[object].is_local = true; }
  /// This process has references again. False if the object is gone.
  bool take_local(Number object);
  /// This process has none any more. True if the object is to be freed.
  bool drop_local(Number object);
  /// Another process has registered. False if the object is gone.
  bool borrow(Number object, StoreId peer);
  /// One registration is over. True if the object is to be freed.
  bool give_back(Number object, StoreId peer);
  /// The process has ended. Returns the objects that are to be freed.
  std::vector<Number> remove_peer(StoreId peer);

  bool has(Number object) const { return objects_.contains(object); }
  std::size_t size() const { return objects_.size(); }
  std::size_t peers() const { return borrowed_.size(); }
  /// Other processes that have references to the object.
  std::size_t borrowers(Number object) const;

 private:
  struct Object {
    bool is_local = false;
    std::unordered_map<StoreId, std::uint32_t> borrowers;  ///< registrations
  };
  using Objects = std::unordered_map<Number, Object>;
  bool forget_if_unused(Objects::iterator found);

  Objects objects_;
  std::unordered_map<StoreId, std::unordered_set<Number>> borrowed_;  ///< of each peer
};

}  // namespace troupe
