#include "actors/scheduler/swap_space.hpp"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

namespace troupe {

bool SwapSpace::put(SequenceId id, std::int32_t count) {
  if (count > free_blocks()) return false;
  SwappedSequence& out = going_out_.emplace_back();
  out.id = id;
  out.host_blocks.reserve(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) {
    if (returned_.empty()) {
      out.host_blocks.push_back(unused_++);
    } else {
      out.host_blocks.push_back(returned_.top());
      returned_.pop();
    }
  }
  return true;
}

std::vector<SwappedSequence> SwapSpace::tell() {
  give_back(std::exchange(coming_back_, {}));
  inside_.insert(inside_.end(), going_out_.begin(), going_out_.end());
  return std::exchange(going_out_, {});
}

std::vector<std::int32_t> SwapSpace::take(SequenceId id) {
  const auto found = std::ranges::find(inside_, id, &SwappedSequence::id);
  assert(found != inside_.end());
  std::vector<std::int32_t> blocks = std::move(found->host_blocks);
  inside_.erase(found);
  coming_back_.insert(coming_back_.end(), blocks.begin(), blocks.end());
  return blocks;
}

void SwapSpace::drop(SequenceId id) {
  for (std::vector<SwappedSequence>* list : {&going_out_, &inside_}) {
    const auto found = std::ranges::find(*list, id, &SwappedSequence::id);
    if (found == list->end()) continue;
    give_back(found->host_blocks);
    list->erase(found);
  }
}

void SwapSpace::give_back(std::span<const std::int32_t> blocks) {
  for (const std::int32_t block : blocks) returned_.push(block);
}

}  // namespace troupe
