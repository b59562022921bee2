#include "models/text/bpe.hpp"

#include <algorithm>
#include <bit>
#include <functional>

#include <nlohmann/json.hpp>

#include "models/text/byte_alphabet.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::text {
namespace {

// Below this length, searching for the lowest rank is faster than a heap.
constexpr std::size_t longest_short_word = 64;

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

bool is_set(const nlohmann::json& model, const char* key) {
  const auto found = model.find(key);
  // NOLINTNEXTLINE(readability-container-size-empty): an empty text is meant, not an empty list
  return found != model.end() && !found->is_null() && *found != "" && *found != 0.0;
}

}  // namespace

MergeTable::MergeTable(std::size_t merges)
    : mask_(std::bit_ceil(2 * merges + 2) - 1), slots_(mask_ + 1) {}

std::size_t MergeTable::slot_of(std::uint64_t key) const {
  std::uint64_t hash = key * 0x9E3779B97F4A7C15u;
  std::size_t slot = (hash ^ hash >> 32) & mask_;
  while (slots_[slot].key != key && slots_[slot].key != ~std::uint64_t{0})
    slot = (slot + 1) & mask_;
  return slot;
}

void MergeTable::insert(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t key = pair_key(left, right);
  slots_[slot_of(key)] = {key, merge};
}

Merge MergeTable::find(std::int32_t left, std::int32_t right) const {
  return slots_[slot_of(pair_key(left, right))].merge;
}

Result<Bpe> Bpe::parse(const nlohmann::json& model, bool byte_level) {
  const auto type = model.value("type", "BPE");
  if (type != "BPE") return fail(ErrorCode::unsupported, "model {}", type);
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    if (is_set(model, key)) return fail(ErrorCode::unsupported, "model BPE with {}", key);

  const auto& merges = model.at("merges");
  Bpe bpe(merges.size());
  bpe.byte_level_ = byte_level;
  bpe.fuses_unknown_ = model.value("fuse_unk", false);
  bpe.has_byte_fallback_ = model.value("byte_fallback", false);
  for (const auto& [token, id] : model.at("vocab").items()) {
    const auto value = id.get<std::int64_t>();
    if (value < 0 || value > largest_token_id)
      return fail(ErrorCode::corrupt_data, "token '{}' has the id {}", token, value);
    bpe.vocabulary_.emplace(token, static_cast<std::int32_t>(value));
  }
  const auto id_of = [&](std::string_view token) {
    const auto found = bpe.vocabulary_.find(token);
    return found == bpe.vocabulary_.end() ? -1 : found->second;
  };
  if (is_set(model, "unk_token")) {
    const auto token = model.at("unk_token").get<std::string>();
    if (id_of(token) < 0)
      return fail(ErrorCode::corrupt_data, "unk_token '{}' is not in the vocabulary", token);
    bpe.unknown_ = id_of(token);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    bpe.byte_ids_[byte] = id_of(
        byte_level ? to_utf8(std::u32string(1, byte_to_character(static_cast<unsigned char>(byte))))
                   : fmt::format("<0x{:02X}>", byte));
  }
  if (model.value("ignore_merges", false)) {
    bpe.whole_words_.emplace();
    for (const auto& [token, id] : bpe.vocabulary_) {
      const auto spelled = byte_level ? bytes_of_token(token) : token;
      if (spelled) bpe.whole_words_->emplace(*spelled, id);
    }
  }
  TROUPE_CHECK(bpe.read_merges(merges));
  return bpe;
}

Result<> Bpe::read_merges(const nlohmann::json& merges) {
  std::uint32_t rank = 0;
  for (const auto& merge : merges) {
    std::string left, right;
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const auto space = text.find(' ');
      left = text.substr(0, space);
      right = space == text.npos ? "" : text.substr(space + 1);
    } else {
      left = merge.at(0).get<std::string>();
      right = merge.at(1).get<std::string>();
    }
    const auto left_id = vocabulary_.find(left), right_id = vocabulary_.find(right),
               merged_id = vocabulary_.find(left + right);
    if (left_id == vocabulary_.end() || right_id == vocabulary_.end() ||
        merged_id == vocabulary_.end()) {
      return fail(ErrorCode::corrupt_data, "merge {} of '{}' and '{}' is not in the vocabulary",
                  rank, left, right);
    }
    merges_.insert(left_id->second, right_id->second, {rank++, merged_id->second});
  }
  return {};
}

void Bpe::first_symbols(std::string_view word, std::vector<std::int32_t>& ids) const {
  bool last_is_unknown = false;
  const auto add_unknown = [&] {
    if (unknown_ && !(fuses_unknown_ && last_is_unknown)) ids.push_back(*unknown_);
    last_is_unknown = true;
  };
  const auto add = [&](std::int32_t id) {
    ids.push_back(id);
    last_is_unknown = false;
  };
  if (byte_level_) {
    for (const char c : word) {
      const std::int32_t id = byte_ids_[static_cast<unsigned char>(c)];
      id >= 0 ? add(id) : add_unknown();
    }
    return;
  }
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t from = at;
    next_code_point(word, at);
    const std::string_view character = word.substr(from, at - from);
    const auto has_byte = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; };
    if (const auto found = vocabulary_.find(character); found != vocabulary_.end()) {
      add(found->second);
    } else if (has_byte_fallback_ && std::all_of(character.begin(), character.end(), has_byte)) {
      for (const char c : character) add(byte_ids_[static_cast<unsigned char>(c)]);
    } else {
      add_unknown();
    }
  }
}

void Bpe::encode_word(std::string_view word, Scratch& scratch,
                      std::vector<std::int32_t>& ids) const {
  if (whole_words_) {
    if (const auto found = whole_words_->find(word); found != whole_words_->end()) {
      ids.push_back(found->second);
      return;
    }
  }
  scratch.ids.clear();
  first_symbols(word, scratch.ids);
  if (scratch.ids.size() <= longest_short_word) {
    merge_short(scratch.ids, scratch.ranks);
  } else {
    merge_long(scratch);
  }
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
}

void Bpe::merge_short(std::vector<std::int32_t>& ids, std::vector<std::uint32_t>& ranks) const {
  if (ids.size() < 2) return;
  ranks.clear();
  for (std::size_t i = 0; i + 1 < ids.size(); ++i)
    ranks.push_back(merges_.find(ids[i], ids[i + 1]).rank);
  while (!ranks.empty()) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (*best == Merge::none) return;
    const auto at = static_cast<std::size_t>(best - ranks.begin());
    ids[at] = merges_.find(ids[at], ids[at + 1]).id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    ranks.erase(best);
    if (at > 0) ranks[at - 1] = merges_.find(ids[at - 1], ids[at]).rank;
    if (at < ranks.size()) ranks[at] = merges_.find(ids[at], ids[at + 1]).rank;
  }
}

void Bpe::merge_long(Scratch& scratch) const {
  auto& [ids, ranks, symbols, heap] = scratch;
  const auto count = static_cast<std::int32_t>(ids.size());
  const auto symbol = [&](std::int32_t i) -> Scratch::Symbol& {
    return symbols[static_cast<std::size_t>(i)];
  };
  const auto merge_at = [&](std::int32_t i) {
    const std::int32_t next = symbol(i).next;
    return next < 0 ? Merge{} : merges_.find(symbol(i).id, symbol(next).id);
  };
  // An entry is rank << 32 | position; it is outdated if the pair there has another rank now.
  const auto entry = [](Merge merge, std::int32_t i) {
    return std::uint64_t{merge.rank} << 32 | static_cast<std::uint32_t>(i);
  };
  symbols.clear();
  for (std::int32_t i = 0; i < count; ++i)
    symbols.push_back({ids[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  heap.clear();
  for (std::int32_t i = 0; i < count; ++i)
    if (const Merge merge = merge_at(i); merge.rank != Merge::none) heap.push_back(entry(merge, i));
  std::make_heap(heap.begin(), heap.end(), std::greater<>{});
  const auto push = [&](std::int32_t i) {
    if (i < 0) return;
    if (const Merge merge = merge_at(i); merge.rank != Merge::none) {
      heap.push_back(entry(merge, i));
      std::push_heap(heap.begin(), heap.end(), std::greater<>{});
    }
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>{});
    const std::uint64_t top = heap.back();
    heap.pop_back();
    const auto at = static_cast<std::int32_t>(top & 0xFFFFFFFF);
    if (symbol(at).id < 0) continue;
    const Merge merge = merge_at(at);
    if (merge.rank != top >> 32) continue;
    Scratch::Symbol& left = symbol(at);
    Scratch::Symbol& right = symbol(left.next);
    left.id = merge.id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbol(left.next).previous = at;
    push(left.previous);
    push(at);
  }
  ids.clear();
  for (std::int32_t i = 0; i >= 0; i = symbol(i).next) ids.push_back(symbol(i).id);
}

}  // namespace troupe::text
