#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Which custom_ids the input had so far, and which of its lines an earlier run has answered. Keeps
/// 127-bit hashes of them (of 10^9 different names, two share one with probability 10^-20), 16
/// bytes a line and a seventh more. One thread at a time.
class LineIds {
 public:
  LineIds();

  /// Makes room for so many lines at once; more may come.
  void reserve(std::size_t lines);

  /// An earlier run has answered the line with this custom_id.
  void add_answer(std::string_view custom_id);
  /// An earlier run has written an error for this line; a line that has lost its number or its
  /// custom_id since is another one.
  void add_error(std::size_t line, const std::optional<std::string>& custom_id);

  enum class Met {
    first,      ///< nobody has had it
    answered,   ///< its answer was added; it is a duplicate from now on
    duplicate,  ///< an earlier line of the input had it
  };
  /// The input has a line with this custom_id.
  Met meet(std::string_view custom_id);
  /// Whether add_error had this line.
  bool has_error(std::size_t line, const std::optional<std::string>& custom_id) const;

  /// Hashes kept.
  std::size_t size() const { return size_; }

 private:
  using Hash = std::pair<std::uint64_t, std::uint64_t>;  ///< the lowest bit of second is a mark
  static Hash error_hash(std::size_t line, const std::optional<std::string>& custom_id);
  std::size_t place_of(const Hash& hash) const;
  void insert(const Hash& hash, bool answered);
  void resize(std::size_t slots);

  std::vector<Hash> slots_;  ///< open addressing; {0, 0} is free
  std::size_t size_ = 0;
  bool any_error_ = false;  ///< spares most jobs a look into a table that no cache holds
};

}  // namespace troupe
