#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// Guesses what follows one sequence's tokens by prompt lookup (Saxena 2023; vLLM's "ngram").
///
/// An index of the n-grams that were seen, n up to 4, grows with the sequence, so that a guess
/// costs a few probes however long the sequence is. Matches longer than 4 tokens are looked for
/// among the latest occurrences of their last 4. The index covers the last `max_tokens` to
/// `max_tokens / 2` tokens, and takes at most some 40 bytes for each of them. One thread at a time.
class PromptLookup {
 public:
  static constexpr std::size_t max_tokens = std::size_t{1} << 18;
  static constexpr std::size_t max_occurrences = 64;

  /// Matches have at most `longest` tokens, at least one.
  explicit PromptLookup(std::int32_t longest);

  /// Of the longest ending of `tokens` that occurred before, what followed it the last time, at
  /// most `count` tokens; empty if there is none. `tokens` are those of the last call and what
  /// came since.
  std::vector<std::int32_t> continuation(std::span<const std::int32_t> tokens, std::int32_t count);

  std::size_t bytes() const;  ///< of the index
  /// Tokens compared and entries looked at since it was made.
  std::uint64_t probes() const { return probes_; }

 private:
  static constexpr std::size_t max_indexed = 4;  ///< n-grams of 1..4 tokens have tables

  /// The last occurrence of each n-gram of one length: a hash table of the positions behind them,
  /// 0 for a free entry. Open addressing, at most half full.
  struct Table {
    std::vector<std::int32_t> ends;
    std::size_t used = 0;
  };

  void index_until(std::span<const std::int32_t> tokens, std::size_t end);
  void insert(std::span<const std::int32_t> tokens, std::size_t length, std::size_t end);
  void grow(std::span<const std::int32_t> tokens, std::size_t length);
  /// The entry of the n-gram that ends at `end`: its last occurrence, or the free one for it.
  std::int32_t& entry(std::span<const std::int32_t> tokens, std::size_t length, std::size_t end);
  bool matches(std::span<const std::int32_t> tokens, std::size_t length, std::size_t a,
               std::size_t b);
  std::optional<std::size_t> last_occurrence(std::span<const std::int32_t> tokens);
  std::size_t longest_of_chain(std::span<const std::int32_t> tokens, std::size_t first);

  std::size_t longest_;
  std::size_t lengths_;      ///< how many n-grams have tables: those of 1..lengths_ tokens
  std::size_t first_ = 0;    ///< the first token that is indexed
  std::size_t indexed_ = 0;  ///< n-grams that end at or before it are in the tables
  std::array<Table, max_indexed> tables_;
  /// Of the longest indexed n-gram ending behind token first_ + i: where it ended before, or 0.
  std::vector<std::int32_t> earlier_;
  std::uint64_t probes_ = 0;
};

}  // namespace troupe
