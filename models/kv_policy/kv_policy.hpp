#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// Which tokens' keys and values a sequence's KV cache keeps (kv_cache.policy). A value.
///
/// What is kept stands without gaps: entries 0, 1, ... of a sequence's cache are its kept tokens in
/// the order of their positions, and a row attends to all of them. Tokens are dropped just before
/// rows at certain positions. These depend on the policy and on the prompt's length alone, not on
/// how a prompt is cut into steps, so what a row sees is a function of its position, and a sequence
/// that is computed anew gets the same cache. No step has rows on both sides of such a position.
///
/// How many entries are dropped is the same in all layers and heads; which ones is not, except for
/// `streaming`.
struct KvPolicy {
  enum class Kind : std::uint8_t {
    full,  ///< every token
    /// The first tokens (attention sinks) and the last ones (Xiao et al. 2023, StreamingLLM,
    /// section 3.2). Keys are rotated by the entry that they are in, not by the token's position
    /// (there: "positions within the cache"), so the sequence may be longer than any position that
    /// the model was trained for.
    streaming,
    /// Of the prompt, the tokens to which its last tokens pay the most attention, and these (Li et
    /// al. 2024, SnapKV, section 4.2); every token after it. Keys keep their positions.
    snapkv,
    /// The tokens that have received the most attention from all rows so far (heavy hitters), and
    /// the last ones (Zhang et al. 2023, H2O, section 4.2), once the prompt is computed. Keys keep
    /// their positions.
    h2o,
  };
  Kind kind = Kind::full;
  /// The most entries: of the whole sequence (streaming), of what is kept of the prompt (snapkv),
  /// or of the sequence once its prompt is computed (h2o). Positive unless `full`.
  std::int32_t capacity = 0;
  std::int32_t first_tokens = 0;  ///< the first entries, which are always kept (streaming)
  /// The last entries, which are always kept (h2o, snapkv). In SnapKV they are also those whose
  /// attention counts (the observation window).
  std::int32_t last_tokens = 0;
  /// Entries that are dropped together, whenever a cache is full (streaming, h2o).
  std::int32_t drop_tokens = 0;
  /// A token's attention is averaged over so many neighbours, itself in the middle (snapkv). Odd.
  std::int32_t pooling_tokens = 1;

  bool is_full() const { return kind == Kind::full; }
  /// Keys are rotated by their entry instead of their token's position.
  bool rotates_by_entry() const { return kind == Kind::streaming; }
  /// What is kept depends on the attention that tokens receive.
  bool observes_attention() const { return kind == Kind::snapkv || kind == Kind::h2o; }

  /// Returns how many of the tokens before `position` are not in the cache any more when its row is
  /// computed, in a sequence with a prompt of `prompt_tokens`.
  std::int32_t dropped_before(std::int32_t position, std::int32_t prompt_tokens) const;
  /// Returns the first position after `position` before which tokens are dropped; a position that
  /// no sequence has if there is none.
  std::int32_t next_drop(std::int32_t position, std::int32_t prompt_tokens) const;
  /// Returns the most entries that a sequence of `positions` holds at one time.
  std::int64_t most_entries(std::int64_t positions, std::int64_t prompt_tokens) const;
  /// The attention of all rows counts for what is kept.
  bool observes_every_row() const { return kind == Kind::h2o; }
  /// True if the attention of the row at `position` counts for what is kept.
  bool observes(std::int32_t position, std::int32_t prompt_tokens) const;

  bool operator==(const KvPolicy&) const = default;

  template <class Archive>
  void fields(Archive& archive) {
    archive(kind, capacity, first_tokens, last_tokens, drop_tokens, pooling_tokens);
  }

 private:
  /// The position of the first drop.
  std::int32_t first_drop(std::int32_t prompt_tokens) const;
};

/// The names of the configuration: "full", "streaming", "snapkv", "h2o".
std::string_view to_string(KvPolicy::Kind kind);

/// The policy with all of its numbers, for people: "streaming: 4 first and 1020 last tokens, 127
/// dropped at once".
std::string describe(const KvPolicy& policy);

}  // namespace troupe
