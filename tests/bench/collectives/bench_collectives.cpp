// Latency of the shared-memory collectives between forked processes, beside one memcpy of the same
// bytes measured in the same run by the same rank, while the others do the same. Medians; rank 0
// prints.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "parallel/collectives/shm_collectives.hpp"

namespace troupe {
namespace {

double median_us(Collectives& group, int rounds, const std::function<bool()>& call) {
  std::vector<double> times;
  for (int i = 0; i < rounds + rounds / 10; ++i) {
    if (!group.barrier().ok()) return -1;
    const auto begin = std::chrono::steady_clock::now();
    if (!call()) return -1;
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (i >= rounds / 10) times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

// Calls back to back, as layers of a model make them: no barrier between, so a rank that is early
// waits inside the call.
double mean_us(Collectives& group, int rounds, const std::function<bool()>& call) {
  if (!group.barrier().ok()) return -1;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < rounds; ++i) {
    if (!call()) return -1;
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  return took.count() / rounds;
}

void bench_rank(Collectives& group) {
  const bool prints = group.rank() == 0;
  if (prints) {
    fmt::print("\n{} ranks\n{:>9} {:>10} {:>14} {:>14} {:>8} {:>18} {:>14}\n", group.size(),
               "bytes", "memcpy us", "all-reduce us", "staged us", "ratio", "back to back us",
               "all-gather us");
  }
  for (std::size_t bytes = 4 << 10; bytes <= 4 << 20; bytes *= 4) {
    const auto elements = static_cast<std::int64_t>(bytes / sizeof(float));
    const int rounds = static_cast<int>(std::clamp<std::size_t>((64u << 20) / bytes, 100, 2000));
    const HostTensor partial(DType::f32, {elements});
    const HostTensor sum(DType::f32, {elements});
    const HostTensor other(DType::f32, {elements});
    const double copy = median_us(group, rounds, [&] {
      std::memcpy(other->data(), partial->data(), bytes);
      return true;
    });
    const double reduce =
        median_us(group, rounds, [&] { return group.all_reduce_tree(partial, sum).ok(); });
    const bool fits = group.staging(DType::f32, {elements}).data() != nullptr;
    const double staged = !fits ? 0 : median_us(group, rounds, [&] {
      return group.all_reduce_tree(group.staging(DType::f32, {elements}), sum).ok();
    });
    const double stream =
        mean_us(group, rounds, [&] { return group.all_reduce_tree(partial, sum).ok(); });
    const std::vector<std::int64_t> rows(static_cast<std::size_t>(group.size()),
                                         elements / group.size());
    const double gather = median_us(
        group, rounds, [&] { return group.all_gather(partial->rows(0, rows[0]), sum, rows).ok(); });
    if (prints) {
      fmt::print("{:>9} {:>10.1f} {:>14.1f} {:>14.1f} {:>8.2f} {:>18.1f} {:>14.1f}\n", bytes, copy,
                 reduce, staged, reduce / copy, stream, gather);
    }
  }
  const double barrier = mean_us(group, 5000, [&] { return group.barrier().ok(); });
  if (prints) fmt::print("barrier {:.1f} us\n", barrier);
  std::fflush(stdout);
}

int bench(int ranks) {
  auto region = SharedMemory::create(shm_collectives_bytes(ranks));
  if (!region) return 1;
  std::fflush(stdout);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid != 0) {
      children.push_back(pid);
      continue;
    }
    auto fd = region->duplicate_fd();
    auto mapped = SharedMemory::map(std::move(*fd));
    auto group = ShmCollectives::attach(std::move(*mapped), rank, ranks);
    if (!group) ::_exit(1);
    bench_rank(**group);
    ::_exit(0);
  }
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    failed += status != 0 ? 1 : 0;
  }
  return failed;
}

}  // namespace
}  // namespace troupe

int main() { return troupe::bench(2) + troupe::bench(4); }
