#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// The custom_ids of the input so far, and the lines that an earlier run has answered. Stores
/// 127-bit hashes (of 10^9 different names, two share one with probability 10^-20), 16 bytes a line
/// and a seventh more. One thread at a time.
class LineIds {
 public:
  LineIds();

  /// Allocates for this many lines at once; more may come.
  void reserve(std::size_t lines);

  /// Notes that an earlier run has answered the line with this custom_id.
  void add_answer(std::string_view custom_id);
  /// Notes that an earlier run has written an error for this line; with another number or custom_id
  /// it counts as another line.
  void add_error(std::size_t line, const std::optional<std::string>& custom_id);

  enum class Met {
    first,      ///< not seen before
    answered,   ///< answered by an earlier run; a duplicate from now on
    duplicate,  ///< an earlier line of the input had it
  };
  /// Notes a line of the input with this custom_id.
  Met meet(std::string_view custom_id);
  /// True if add_error was called for this line.
  bool has_error(std::size_t line, const std::optional<std::string>& custom_id) const;

  /// The number of stored hashes.
  std::size_t size() const { return size_; }

 private:
  using Hash = std::pair<std::uint64_t, std::uint64_t>;  ///< the lowest bit of second is a mark
  static Hash error_hash(std::size_t line, const std::optional<std::string>& custom_id);
  std::size_t place_of(const Hash& hash) const;
  void insert(const Hash& hash, bool answered);
  void resize(std::size_t slots);

  std::vector<Hash> slots_;  ///< open addressing; {0, 0} is free
  std::size_t size_ = 0;
  bool any_error_ = false;  ///< spares most jobs a lookup that misses every cache
};

}  // namespace troupe
