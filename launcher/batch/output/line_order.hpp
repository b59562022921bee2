#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

namespace troupe {

/// A line of the output.
struct OutputLine {
  std::size_t line = 0;  ///< of the input, that it answers
  std::string text;
  std::string error_code = {};  ///< empty: it is an answer
  std::string error = {};
};

/// Brings the lines of an output into the order of the input: a line that comes early is kept until
/// those before it have come. One thread at a time.
class LineOrder {
 public:
  /// The line of the input that stands next in the output; numbers ascend.
  void expect(std::size_t line);
  /// What is to be written for an expected line, once.
  void put(OutputLine line);
  /// The next one whose turn it is; nullopt while that has not come.
  std::optional<OutputLine> take();

  /// Whether more lines may be expected without keeping too much.
  bool has_room() const { return kept_bytes_ < max_kept_bytes && slots_.size() < max_slots; }

 private:
  static constexpr std::size_t max_kept_bytes = std::size_t{64} << 20;
  static constexpr std::size_t max_slots = std::size_t{1} << 17;

  struct Slot {
    std::size_t line = 0;
    std::optional<OutputLine> output;
  };
  std::deque<Slot> slots_;
  std::size_t kept_bytes_ = 0;
};

}  // namespace troupe
