#include "launcher/batch/input/line_ids.hpp"

#include <algorithm>

#include "runtime/base/hash.hpp"

namespace troupe {
namespace {

constexpr std::size_t first_slots = 1024;
constexpr std::uint64_t answered_mark = 1;

std::pair<std::uint64_t, std::uint64_t> unmarked_hash(std::string_view name, std::uint64_t seed) {
  auto hash = hash_128(name, seed);
  hash.second &= ~answered_mark;
  if (hash.first == 0 && hash.second == 0) hash.first = 1;
  return hash;
}

std::size_t slots_for(std::size_t lines) { return lines + lines / 7 + 1; }

}  // namespace

LineIds::LineIds() : slots_(first_slots) {}

void LineIds::reserve(std::size_t lines) {
  if (slots_for(lines) > slots_.size()) resize(slots_for(lines));
}

LineIds::Hash LineIds::error_hash(std::size_t line, const std::optional<std::string>& custom_id) {
  return unmarked_hash(custom_id ? std::string_view(*custom_id) : std::string_view(), line);
}

/// Returns the slot of the hash, whatever its mark, or the free slot for it.
std::size_t LineIds::place_of(const Hash& hash) const {
  __extension__ using Wide = unsigned __int128;
  std::size_t i = static_cast<std::size_t>((static_cast<Wide>(hash.first) * slots_.size()) >> 64);
  while (slots_[i] != Hash{0, 0} && (slots_[i].first != hash.first ||
                                     ((slots_[i].second ^ hash.second) & ~answered_mark) != 0)) {
    i = i + 1 == slots_.size() ? 0 : i + 1;
  }
  return i;
}

void LineIds::insert(const Hash& hash, bool answered) {
  if (slots_for(size_ + 1) > slots_.size()) resize(slots_.size() * 2);
  Hash& slot = slots_[place_of(hash)];
  if (slot == Hash{0, 0}) ++size_;
  slot = {hash.first, hash.second | (answered ? answered_mark : 0)};
}

void LineIds::resize(std::size_t slots) {
  std::vector<Hash> old(slots);
  old.swap(slots_);
  for (const Hash& hash : old) {
    if (hash != Hash{0, 0}) slots_[place_of(hash)] = hash;
  }
}

void LineIds::add_answer(std::string_view custom_id) { insert(unmarked_hash(custom_id, 0), true); }

void LineIds::add_error(std::size_t line, const std::optional<std::string>& custom_id) {
  insert(error_hash(line, custom_id), true);
  any_error_ = true;
}

LineIds::Met LineIds::meet(std::string_view custom_id) {
  const Hash hash = unmarked_hash(custom_id, 0);
  const Hash& slot = slots_[place_of(hash)];
  const bool free = slot == Hash{0, 0};
  if (!free && (slot.second & answered_mark) == 0) return Met::duplicate;
  insert(hash, false);
  return free ? Met::first : Met::answered;
}

bool LineIds::has_error(std::size_t line, const std::optional<std::string>& custom_id) const {
  return any_error_ && slots_[place_of(error_hash(line, custom_id))] != Hash{0, 0};
}

}  // namespace troupe
