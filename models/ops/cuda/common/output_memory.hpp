#pragma once

#include <cstddef>
#include <map>

namespace troupe {

/// The device memory of MemoryOps::allocate_outputs. One thread at a time.
class OutputMemory {
 public:
  void add(std::byte* begin, std::size_t bytes) { ends_[begin] = begin + bytes; }
  void remove(std::byte* begin) { ends_.erase(begin); }

  /// How many bytes behind `end`, where an output ends, products may write: 0 if `begin`, where it
  /// begins, is in other memory.
  std::size_t bytes_behind(const std::byte* begin, const std::byte* end) const {
    auto next = ends_.upper_bound(begin);
    if (next == ends_.begin()) return 0;
    const std::byte* const memory_end = (--next)->second;
    return end < memory_end ? static_cast<std::size_t>(memory_end - end) : 0;
  }

 private:
  std::map<const std::byte*, const std::byte*, std::less<>> ends_;  ///< by their beginnings
};

}  // namespace troupe
