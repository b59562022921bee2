#include "runtime/node/cpu_pool.hpp"

#include <algorithm>
#include <tuple>

namespace troupe {

CpuPool::CpuPool(std::span<const int> cpus) {
  for (const int cpu : cpus) holders_[cpu] = 0;
}

std::vector<int> CpuPool::take(std::uint64_t holder, std::size_t count, std::span<const int> near) {
  std::vector<std::tuple<std::size_t, bool, int>> order;
  for (const auto& [cpu, holders] : holders_) {
    order.emplace_back(holders, std::ranges::find(near, cpu) == near.end(), cpu);
  }
  std::ranges::sort(order);
  order.resize(std::min(order.size(), count));
  std::vector<int> taken;
  for (const auto& [holders, is_far, cpu] : order) {
    taken.push_back(cpu);
    ++holders_[cpu];
  }
  std::ranges::sort(taken);
  auto& held = held_[holder];
  held.insert(held.end(), taken.begin(), taken.end());
  return taken;
}

void CpuPool::give_back(std::uint64_t holder) {
  const auto found = held_.find(holder);
  if (found == held_.end()) return;
  for (const int cpu : found->second) --holders_[cpu];
  held_.erase(found);
}

}  // namespace troupe
