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
/// An index of the n-grams seen, n up to 4, grows with the sequence, so that a guess costs a few
/// probes however long the sequence is. Matches longer than 4 tokens are searched among the latest
/// occurrences of their last 4. The index covers between `max_tokens / 2` and `max_tokens` latest
/// tokens, and takes at most some 40 bytes for each. One thread at a time.
class PromptLookup {
 public:
  static constexpr std::size_t max_tokens = std::size_t{1} << 18;
  static constexpr std::size_t max_occurrences = 64;

  /// Matches have between one and `longest` tokens.
  explicit PromptLookup(std::int32_t longest);

  /// Returns what followed the last earlier occurrence of the longest ending of `tokens` that has
  /// one, at most `count` tokens; empty if there is none. `tokens` are those of the last call with
  /// new ones appended.
  std::vector<std::int32_t> continuation(std::span<const std::int32_t> tokens, std::int32_t count);

  std::size_t bytes() const;  ///< memory of the index
  /// Tokens compared and entries probed since construction.
  std::uint64_t probes() const { return probes_; }

 private:
  static constexpr std::size_t max_indexed = 4;  ///< n-grams of 1..4 tokens have tables

  /// The last occurrence of each n-gram of one length: a hash table of the positions after them, 0
  /// for a free entry. Open addressing, at most half full.
  struct Table {
    std::vector<std::int32_t> ends;
    std::size_t used = 0;
  };

  void index_until(std::span<const std::int32_t> tokens, std::size_t end);
  void insert(std::span<const std::int32_t> tokens, std::size_t length, std::size_t end);
  void grow(std::span<const std::int32_t> tokens, std::size_t length);
  /// Returns the entry of the n-gram that ends at `end`: its last occurrence, or a free entry for
  /// it.
  std::int32_t& entry(std::span<const std::int32_t> tokens, std::size_t length, std::size_t end);
  bool matches(std::span<const std::int32_t> tokens, std::size_t length, std::size_t a,
               std::size_t b);
  std::optional<std::size_t> last_occurrence(std::span<const std::int32_t> tokens);
  std::size_t longest_of_chain(std::span<const std::int32_t> tokens, std::size_t first);

  std::size_t longest_;
  std::size_t lengths_;      ///< tables exist for n-grams of 1..lengths_ tokens
  std::size_t first_ = 0;    ///< the first token that is indexed
  std::size_t indexed_ = 0;  ///< n-grams that end at or before this are in the tables
  std::array<Table, max_indexed> tables_;
  /// The earlier end of the longest indexed n-gram that ends after token first_ + i, or 0.
  std::vector<std::int32_t> earlier_;
  std::uint64_t probes_ = 0;
};

}  // namespace troupe
