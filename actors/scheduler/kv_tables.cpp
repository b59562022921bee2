#include "actors/scheduler/kv_tables.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "runtime/base/hash.hpp"
#include "runtime/base/invariant.hpp"

namespace troupe {
namespace {

BlockContent content_after(const BlockContent& before, std::span<const std::int32_t> tokens) {
  std::vector<char> bytes(2 * sizeof(std::uint64_t) + tokens.size_bytes());
  std::memcpy(bytes.data(), &before.high, sizeof before.high);
  std::memcpy(bytes.data() + sizeof before.high, &before.low, sizeof before.low);
  std::memcpy(bytes.data() + 2 * sizeof before.high, tokens.data(), tokens.size_bytes());
  const auto [high, low] = hash_128(std::string_view(bytes.data(), bytes.size()));
  return {high, low, 0};
}

BlockContent of_group(std::size_t group, const BlockContent& content) {
  return {content.high, content.low, static_cast<std::int32_t>(group)};
}

}  // namespace

KvTables::KvTables(std::int32_t blocks, std::int32_t block_size, std::vector<std::int32_t> windows,
                   bool prefix_caching)
    : pool_(blocks),
      block_size_(block_size),
      windows_(std::move(windows)),
      prefix_caching_(prefix_caching) {}

std::int32_t KvTables::take_prefix(std::span<const std::int32_t> tokens, std::int32_t most,
                                   SequenceBlocks& held) {
  held.tables.resize(groups());
  held.dropped.assign(groups(), 0);
  if (!prefix_caching_ || most < block_size_) return 0;
  const auto limit = static_cast<std::size_t>(most / block_size_);
  std::size_t blocks = 0;
  while (blocks < limit) {
    compute_contents(tokens, blocks + 1, held);
    const auto has_block = [&](std::size_t group) {
      return windows_[group] != 0 || find(group, held.contents[blocks]).has_value();
    };
    bool all = true;
    for (std::size_t group = 0; group < groups() && all; ++group) all = has_block(group);
    if (!all) break;
    ++blocks;
  }
  const auto windows_found = [&] {
    for (std::size_t group = 0; group < groups(); ++group) {
      if (!window_found(group, blocks, held)) return false;
    }
    return true;
  };
  while (blocks > 0 && !windows_found()) --blocks;

  const auto length = static_cast<std::int32_t>(blocks) * block_size_;
  for (std::size_t group = 0; group < groups(); ++group) {
    held.dropped[group] = first_seen(group, length);
    for (std::size_t i = 0; i < blocks; ++i) {
      BlockId block = -1;
      if (static_cast<std::int32_t>(i) >= held.dropped[group]) {
        block = *find(group, held.contents[i]);
        require(pool_.share(block), "a cached block is shared");
      }
      held.tables[group].push_back(block);
    }
  }
  held.published = static_cast<std::int32_t>(blocks);
  return length;
}

bool KvTables::grow(std::int32_t end, SequenceBlocks& held) {
  const std::int32_t more = missing(end, held);
  if (more > pool_.free_blocks()) return false;
  for (auto& table : held.tables) {
    require(pool_.allocate(more / static_cast<std::int32_t>(groups()), table),
            "as many blocks are free as were counted");
  }
  return true;
}

std::int32_t KvTables::missing(std::int32_t end, const SequenceBlocks& held) const {
  const std::int32_t blocks = (end + block_size_ - 1) / block_size_;
  const std::int32_t more = blocks - static_cast<std::int32_t>(held.tables.front().size());
  return std::max(more, 0) * static_cast<std::int32_t>(groups());
}

std::vector<BlockId> KvTables::take_new(SequenceBlocks& held) const {
  const std::size_t all = held.tables.front().size();
  std::vector<BlockId> added;
  if (held.reported == all) return added;
  for (const auto& table : held.tables) {
    added.insert(added.end(), table.begin() + static_cast<std::ptrdiff_t>(held.reported),
                 table.end());
  }
  held.reported = all;
  return added;
}

void KvTables::publish(std::span<const std::int32_t> tokens, std::int32_t end,
                       SequenceBlocks& held) {
  if (!prefix_caching_) return;
  const std::int32_t full = std::min(end, static_cast<std::int32_t>(tokens.size())) / block_size_;
  if (full <= held.published) return;
  compute_contents(tokens, static_cast<std::size_t>(full), held);
  for (; held.published < full; ++held.published) {
    const auto i = static_cast<std::size_t>(held.published);
    for (std::size_t group = 0; group < groups(); ++group) {
      if (held.tables[group][i] < 0) continue;
      pool_.publish(held.tables[group][i], of_group(group, held.contents[i]));
    }
  }
}

void KvTables::drop_left(std::int32_t position, SequenceBlocks& held) {
  for (std::size_t group = 0; group < groups(); ++group) {
    if (windows_[group] == 0) continue;
    auto& table = held.tables[group];
    const std::int32_t seen =
        std::min(first_seen(group, position), static_cast<std::int32_t>(table.size()));
    if (seen <= held.dropped[group]) continue;
    const auto left =
        std::span(table).subspan(static_cast<std::size_t>(held.dropped[group]),
                                 static_cast<std::size_t>(seen - held.dropped[group]));
    require(pool_.release(left), "blocks left of the window are released");
    std::ranges::fill(left, -1);
    held.dropped[group] = seen;
  }
}

void KvTables::truncate(std::int32_t entries, SequenceBlocks& held) {
  const auto kept = static_cast<std::size_t>((entries + block_size_ - 1) / block_size_);
  for (auto& table : held.tables) {
    if (table.size() <= kept) continue;
    require(pool_.release(std::span(table).subspan(kept)), "blocks of dropped tokens are released");
    table.resize(kept);
  }
  held.reported = std::min(held.reported, kept);
}

void KvTables::release(SequenceBlocks& held) {
  for (const auto& table : held.tables) {
    require(pool_.release(table), "blocks of a sequence are released");
  }
  held.tables.clear();
  held.dropped.clear();
  held.published = 0;
  held.reported = 0;
}

void KvTables::vacate(SequenceBlocks& held) {
  for (auto& table : held.tables) {
    require(pool_.release(table), "blocks of a swapped sequence are released");
    std::ranges::fill(table, -1);
  }
  held.published = 0;
}

std::vector<BlockId> KvTables::refill(SequenceBlocks& held) {
  std::vector<BlockId> all;
  for (std::size_t group = 0; group < groups(); ++group) {
    auto& table = held.tables[group];
    const std::size_t length = table.size();
    table.resize(static_cast<std::size_t>(held.dropped[group]));
    require(pool_.allocate(static_cast<std::int32_t>(length - table.size()), table),
            "a swapped sequence comes back to free blocks");
    all.insert(all.end(), table.begin(), table.end());
  }
  return all;
}

std::vector<std::int32_t> KvTables::in_places_of(std::span<const std::int32_t> other,
                                                 const SequenceBlocks& held) const {
  std::vector<std::int32_t> all;
  std::size_t next = 0;
  for (std::size_t group = 0; group < groups(); ++group) {
    const auto dropped = static_cast<std::size_t>(held.dropped[group]);
    for (std::size_t i = 0; i < held.tables[group].size(); ++i) {
      all.push_back(i < dropped ? -1 : other[next++]);
    }
  }
  return all;
}

std::int32_t KvTables::held(const SequenceBlocks& held) const {
  std::int32_t blocks = 0;
  for (std::size_t group = 0; group < held.tables.size(); ++group) {
    blocks += static_cast<std::int32_t>(held.tables[group].size()) - held.dropped[group];
  }
  return blocks;
}

std::int32_t KvTables::held_alone(const SequenceBlocks& held) const {
  std::int32_t blocks = 0;
  for (const auto& table : held.tables) {
    for (const BlockId block : table) {
      blocks += block >= 0 && pool_.references(block) == 1 ? 1 : 0;
    }
  }
  return blocks;
}

std::int32_t KvTables::growth(std::int32_t end, std::int32_t chunk,
                              const SequenceBlocks& held) const {
  const std::int32_t most = max_held(end, chunk) - this->held(held);
  return std::max(std::min(missing(end, held), most), 0);
}

std::int32_t KvTables::max_held(std::int64_t positions, std::int32_t chunk) const {
  std::int64_t most = 0;
  for (const std::int32_t window : windows_) {
    std::int64_t held = (positions + block_size_ - 1) / block_size_;
    if (window != 0) {
      // The window before the chunk and the chunk itself; neither need begin at a block boundary.
      held = std::min(held, (std::int64_t{window} + chunk + block_size_ - 1) / block_size_ + 1);
    }
    most += held;
  }
  return static_cast<std::int32_t>(most);
}

void KvTables::compute_contents(std::span<const std::int32_t> tokens, std::size_t blocks,
                                SequenceBlocks& held) const {
  const auto size = static_cast<std::size_t>(block_size_);
  while (held.contents.size() < blocks) {
    const std::size_t begin = held.contents.size() * size;
    const BlockContent before = held.contents.empty() ? BlockContent{} : held.contents.back();
    held.contents.push_back(content_after(before, tokens.subspan(begin, size)));
  }
}

std::optional<BlockId> KvTables::find(std::size_t group, const BlockContent& content) const {
  return pool_.find(of_group(group, content));
}

bool KvTables::window_found(std::size_t group, std::size_t blocks,
                            const SequenceBlocks& held) const {
  if (windows_[group] == 0) return true;
  const std::int32_t next = static_cast<std::int32_t>(blocks) * block_size_;
  for (auto i = static_cast<std::size_t>(first_seen(group, next)); i < blocks; ++i) {
    if (!find(group, held.contents[i])) return false;
  }
  return true;
}

std::int32_t KvTables::first_seen(std::size_t group, std::int32_t position) const {
  if (windows_[group] == 0) return 0;
  return std::max(position - windows_[group] + 1, 0) / block_size_;
}

}  // namespace troupe
