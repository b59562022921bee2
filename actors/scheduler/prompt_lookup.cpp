#include "actors/scheduler/prompt_lookup.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t min_entries = 64;

/// A finaliser of MurmurHash3 over the tokens of one n-gram, last token first.
std::uint64_t hash_of(std::span<const std::int32_t> tokens, std::size_t length, std::size_t end) {
  std::uint64_t hash = length;
  for (std::size_t i = 0; i < length; ++i) {
    hash = (hash ^ static_cast<std::uint32_t>(tokens[end - 1 - i])) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 33;
  }
  return hash;
}

}  // namespace

PromptLookup::PromptLookup(std::int32_t longest)
    : longest_(static_cast<std::size_t>(std::max(longest, 1))),
      lengths_(std::min(longest_, max_indexed)) {}

std::vector<std::int32_t> PromptLookup::continuation(std::span<const std::int32_t> tokens,
                                                     std::int32_t count) {
  if (count < 1 || tokens.size() < 2) return {};
  index_until(tokens, tokens.size() - 1);
  const auto end = last_occurrence(tokens);
  if (!end) return {};
  const auto following = tokens.subspan(*end);
  const auto taken = following.first(std::min(following.size(), static_cast<std::size_t>(count)));
  return {taken.begin(), taken.end()};
}

std::optional<std::size_t> PromptLookup::last_occurrence(std::span<const std::int32_t> tokens) {
  for (std::size_t length = lengths_; length > 0; --length) {
    if (tokens.size() - first_ <= length) continue;
    const auto end = static_cast<std::size_t>(entry(tokens, length, tokens.size()));
    if (end == 0) continue;
    return length == lengths_ && longest_ > lengths_ ? longest_of_chain(tokens, end) : end;
  }
  return std::nullopt;
}

/// Returns the occurrence that shares the most tokens with the ending; `end` is the latest one.
std::size_t PromptLookup::longest_of_chain(std::span<const std::int32_t> tokens, std::size_t end) {
  std::size_t best = end;
  std::size_t best_length = 0;
  for (std::size_t seen = 0; end > first_ && seen < max_occurrences; ++seen) {
    std::size_t length = lengths_;
    const std::size_t room = std::min(longest_, end - first_);
    while (length < room && tokens[end - 1 - length] == tokens[tokens.size() - 1 - length]) {
      ++length;
    }
    probes_ += length;
    if (length > best_length) {
      best = end;
      best_length = length;
    }
    if (length == longest_) break;
    end = static_cast<std::size_t>(earlier_[end - 1 - first_]);
  }
  return best;
}

void PromptLookup::index_until(std::span<const std::int32_t> tokens, std::size_t end) {
  if (end - first_ > max_tokens) {
    first_ = indexed_ = end - max_tokens / 2;
    tables_ = {};
    earlier_.clear();
  }
  earlier_.resize(end - first_, 0);
  while (indexed_ < end) {
    ++indexed_;
    for (std::size_t length = 1; length <= std::min(lengths_, indexed_ - first_); ++length) {
      insert(tokens, length, indexed_);
    }
  }
}

void PromptLookup::insert(std::span<const std::int32_t> tokens, std::size_t length,
                          std::size_t end) {
  Table& table = tables_[length - 1];
  if (2 * (table.used + 1) > table.ends.size()) grow(tokens, length);
  std::int32_t& last = entry(tokens, length, end);
  const std::int32_t before = std::exchange(last, static_cast<std::int32_t>(end));
  if (before == 0) ++table.used;
  if (length == lengths_) earlier_[end - 1 - first_] = before;
}

void PromptLookup::grow(std::span<const std::int32_t> tokens, std::size_t length) {
  Table& table = tables_[length - 1];
  const std::vector<std::int32_t> old = std::exchange(
      table.ends, std::vector<std::int32_t>(std::max(min_entries, 2 * table.ends.size()), 0));
  for (const std::int32_t end : old) {
    if (end != 0) entry(tokens, length, static_cast<std::size_t>(end)) = end;
  }
}

std::int32_t& PromptLookup::entry(std::span<const std::int32_t> tokens, std::size_t length,
                                  std::size_t end) {
  std::vector<std::int32_t>& ends = tables_[length - 1].ends;
  std::size_t at = hash_of(tokens, length, end) & (ends.size() - 1);
  while (ends[at] != 0 && !matches(tokens, length, static_cast<std::size_t>(ends[at]), end)) {
    at = (at + 1) & (ends.size() - 1);
  }
  return ends[at];
}

bool PromptLookup::matches(std::span<const std::int32_t> tokens, std::size_t length, std::size_t a,
                           std::size_t b) {
  probes_ += length;
  return std::equal(tokens.begin() + static_cast<std::ptrdiff_t>(a - length),
                    tokens.begin() + static_cast<std::ptrdiff_t>(a),
                    tokens.begin() + static_cast<std::ptrdiff_t>(b - length));
}

std::size_t PromptLookup::bytes() const {
  std::size_t entries = earlier_.capacity();
  for (const Table& table : tables_) entries += table.ends.capacity();
  return entries * sizeof(std::int32_t);
}

}  // namespace troupe
