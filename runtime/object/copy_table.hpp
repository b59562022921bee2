#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/object/object_id.hpp"

namespace troupe {

/// A process that holds an object, or is pulling it.
struct Copy {
  std::string endpoint;
  std::string locality;  ///< processes of the same one map its segments
  bool is_complete = false;
};

/// Where the large objects of one process are: at most one copy in each locality. All operations
/// cost O(copies of the object), the end of a process one for each copy that it held. Not
/// synchronised.
class CopyTable {
 public:
  using Number = std::uint64_t;

  /// Notes a copy, in place of one of that locality.
  void add(Number object, Copy copy);
  /// The process has pulled the object. False if it is not known to pull it.
  bool complete(Number object, StoreId holder);
  /// False if it is not known to have a copy.
  bool remove(Number object, StoreId holder);
  /// Forgets the object; returns the endpoints of those that hold it.
  std::vector<std::string> forget(Number object);
  /// The process has ended. Returns the objects of which it had a copy.
  std::vector<Number> remove_peer(StoreId holder);

  /// The copy in a locality; null if there is none.
  const Copy* find(Number object, const std::string& locality) const;
  /// The endpoints of complete copies.
  std::vector<std::string> complete_copies(Number object) const;
  std::size_t count(Number object) const;
  std::size_t peers() const { return held_.size(); }

 private:
  void unlink(Number object, const Copy& copy);

  std::unordered_map<Number, std::vector<Copy>> copies_;
  std::unordered_map<StoreId, std::unordered_set<Number>> held_;
};

}  // namespace troupe
