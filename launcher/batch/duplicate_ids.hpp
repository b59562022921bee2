#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// A set of names that keeps 16 bytes of each: their 128-bit hashes (of 10^9 different names, two
/// share one with probability 10^-21). One thread at a time.
class DuplicateIds {
 public:
  DuplicateIds();

  /// Adds `name`; false if it was there already.
  bool insert(std::string_view name);

  std::size_t size() const { return size_; }

 private:
  using Hash = std::pair<std::uint64_t, std::uint64_t>;
  bool insert_hash(const Hash& hash);
  void grow();

  std::vector<Hash> slots_;  ///< open addressing, a power of two; {0, 0} is free
  std::size_t size_ = 0;
};

}  // namespace troupe
