#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/result.hpp"

namespace troupe::text {

/// Lets a map with string keys be searched with a string_view.
struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};

using Vocabulary = std::unordered_map<std::string, std::int32_t, StringHash, std::equal_to<>>;

/// Ids index tables, so a file must not make these larger than memory.
inline constexpr std::int64_t largest_token_id = (1 << 22) - 1;

/// The rank of a merge and the token it makes.
struct Merge {
  std::uint32_t rank = none;
  std::int32_t id = -1;

  static constexpr std::uint32_t none = 0xFFFFFFFF;  // the rank of two tokens that do not merge
};

/// Merges by their pair of tokens: open addressing, at most half full.
class MergeTable {
 public:
  explicit MergeTable(std::size_t merges);
  void insert(std::int32_t left, std::int32_t right, Merge merge);
  Merge find(std::int32_t left, std::int32_t right) const;

 private:
  struct Slot {
    std::uint64_t key = ~std::uint64_t{0};
    Merge merge;
  };
  std::size_t slot_of(std::uint64_t key) const;

  std::size_t mask_;
  std::vector<Slot> slots_;
};

/// The "model" of a tokenizer.json of type BPE: splits a word into its characters (or bytes) and
/// repeatedly merges the adjacent pair whose merge has the lowest rank, the leftmost if equal,
/// until none is left.
class Bpe {
 public:
  /// Buffers that encode_word keeps between words; one per thread and text.
  struct Scratch {
    struct Symbol {
      std::int32_t id;
      std::int32_t previous, next;  // -1: none
    };
    std::vector<std::int32_t> ids;
    std::vector<std::uint32_t> ranks;
    std::vector<Symbol> symbols;
    std::vector<std::uint64_t> heap;
  };

  /// `byte_level`: the vocabulary is spelled in the byte alphabet. Errors: unsupported,
  /// corrupt_data. May throw nlohmann::json::exception on values of other types.
  static Result<Bpe> parse(const nlohmann::json& model, bool byte_level);

  /// Appends the tokens of `word`, well-formed UTF-8, to `ids`. Parts that the vocabulary cannot
  /// spell become the unknown token, or nothing if there is none. Takes n log n at worst.
  void encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Bpe(std::size_t merges) : merges_(merges) {}
  Result<> read_merges(const nlohmann::json& merges);
  void first_symbols(std::string_view word, std::vector<std::int32_t>& ids) const;
  void merge_short(std::vector<std::int32_t>& ids, std::vector<std::uint32_t>& ranks) const;
  void merge_long(Scratch& scratch) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  bool byte_level_ = false;
  bool fuses_unknown_ = false;
  bool has_byte_fallback_ = false;
  std::optional<std::int32_t> unknown_;
  std::array<std::int32_t, 256> byte_ids_;  // id of each byte's token, -1: none
  std::optional<Vocabulary> whole_words_;   // with ignore_merges: keyed by the text they spell
};

}  // namespace troupe::text
