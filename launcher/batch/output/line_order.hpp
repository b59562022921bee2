#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

namespace troupe {

/// A line of the output.
struct OutputLine {
  std::size_t line = 0;  ///< number of the input line that it answers
  std::string text;
  std::string error_code = {};  ///< empty: an answer
  std::string error = {};
};

/// Orders the lines of an output as in the input: an early line is kept until those before it have
/// come. One thread at a time.
class LineOrder {
 public:
  /// Announces the input line that comes next in the output; numbers ascend.
  void expect(std::size_t line);
  /// Sets the text for an announced line, once.
  void put(OutputLine line);
  /// Returns the next line in order; nullopt while it has not come.
  std::optional<OutputLine> take();

  /// True if more lines may be announced without keeping too much.
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
