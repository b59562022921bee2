// Time and bandwidth of the collectives between the GPUs of this machine, a process each. Calls up
// to 4 MiB are captured in a graph, like a model's decode steps; larger ones are enqueued one by
// one. The mean of calls back to back; rank 0 prints. Bus bandwidth counts what a ring would carry:
// 2 (n - 1) / n of the bytes for a sum, (n - 1) / n for the others, which makes sizes comparable.
// "and norm" is the sum with its addition to a residual stream and the norm, undivided and divided
// over the ranks.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "models/ops/cuda/cuda_collectives.hpp"
#include "models/ops/cuda/cuda_ops.hpp"
#include "parallel/collectives/nccl/nccl_collectives.hpp"
#include "parallel/collectives/shm/shm_collectives.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;
using Call = std::function<Result<void>()>;

constexpr std::int64_t max_bytes = std::int64_t{256} << 20;
constexpr std::int64_t max_recorded_bytes = std::int64_t{4} << 20;
constexpr int calls_in_graph = 20;
constexpr std::int64_t hidden = 4096;  // of normalised rows

struct Rank {
  std::unique_ptr<Collectives> host;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Collectives> device;
};

Result<double> mean_us(Rank& rank, std::int64_t bytes, const Call& call) {
  const bool graph_captured = bytes <= max_recorded_bytes;
  std::unique_ptr<CapturedGraph> graph;
  for (int i = 0; i < 3; ++i) TROUPE_CHECK(call());
  TROUPE_CHECK(rank.ops->stream().synchronize());
  if (graph_captured) {
    TROUPE_TRY(graph, rank.ops->stream().capture([&]() -> Result<void> {
      for (int i = 0; i < calls_in_graph; ++i) TROUPE_CHECK(call());
      return {};
    }));
    rank.ops->stream().replay(*graph);
    TROUPE_CHECK(rank.ops->stream().synchronize());
  }
  TROUPE_CHECK(rank.host->barrier());
  const int rounds = graph_captured ? 20 : 10;
  const auto begin = Clock::now();
  for (int round = 0; round < rounds; ++round) {
    if (graph_captured) {
      rank.ops->stream().replay(*graph);
    } else {
      TROUPE_CHECK(call());
    }
  }
  TROUPE_CHECK(rank.ops->stream().synchronize());
  const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
  return took.count() / (rounds * (graph_captured ? calls_in_graph : 1));
}

Result<void> measure(Rank& rank) {
  const auto size = static_cast<std::int64_t>(rank.device->size());
  const bool prints = rank.device->rank() == 0;
  const auto& nccl = static_cast<const NcclCollectives&>(*rank.device);
  if (prints) {
    fmt::print("{} GPUs, {}; us (bus GB/s)\n{:>10}", size,
               nccl.shares_memory() ? "which reach each other's memory" : "through NCCL alone",
               "bytes");
    for (const char* column :
         {"sum bf16", "and norm", "divided", "NCCL bf16", "sum f32", "all-gather", "all-to-all"}) {
      fmt::print(" {:>16}", column);
    }
    fmt::print("\n");
  }
  TROUPE_TRY(const DeviceTensor in, rank.ops->memory().allocate(DType::u8, {max_bytes}));
  TROUPE_TRY(const DeviceTensor out, rank.ops->memory().allocate(DType::u8, {2 * max_bytes}));
  TROUPE_TRY(const DeviceTensor residual, rank.ops->memory().allocate(DType::u8, {max_bytes}));
  TROUPE_TRY(const DeviceTensor weight, rank.ops->memory().allocate(DType::f32, {hidden}));
  const std::vector<std::int64_t> one_each(static_cast<std::size_t>(size), 1);
  for (const std::int64_t bytes :
       {std::int64_t{8} << 10, std::int64_t{32} << 10, std::int64_t{64} << 10,
        std::int64_t{128} << 10, std::int64_t{256} << 10, std::int64_t{512} << 10,
        std::int64_t{1} << 20, std::int64_t{2} << 20, std::int64_t{4} << 20, std::int64_t{8} << 20,
        std::int64_t{64} << 20, max_bytes}) {
    const auto view = [&](const DeviceTensor& of, DType dtype, Shape shape) {
      return Tensor(of->data(), dtype, shape);
    };
    const auto sum = [&](DType part, DType whole) -> Call {
      const Shape shape{bytes / static_cast<std::int64_t>(size_of(part))};
      return [&, part, whole, shape] {
        return rank.device->all_reduce_tree(view(in, part, shape), view(out, whole, shape));
      };
    };
    const Shape rows{size, bytes / size};
    const Call library = [&] {
      const Shape shape{bytes / 2};
      return rank.device->library_all_reduce(view(in, DType::bf16, shape),
                                             view(out, DType::bf16, shape));
    };
    const auto norm = [&](bool divided) -> Call {
      const Shape shape{bytes / 2 / hidden, hidden};
      return [&, shape, divided] {
        return rank.device->all_reduce_rms_norm({.partial = view(in, DType::bf16, shape),
                                                 .residual = view(residual, DType::bf16, shape),
                                                 .weight = weight,
                                                 .eps = 1e-6F,
                                                 .normed = view(out, DType::bf16, shape),
                                                 .divided = divided});
      };
    };
    const Call gather = [&] {
      return rank.device->all_gather(view(in, DType::u8, {1, bytes / size}),
                                     view(out, DType::u8, rows), one_each);
    };
    const Call exchange = [&] {
      return rank.device->all_to_all(view(in, DType::u8, rows), one_each,
                                     view(out, DType::u8, rows), one_each);
    };
    std::string line = fmt::format("{:>10}", bytes);
    const double ring = static_cast<double>(size - 1) / static_cast<double>(size);
    const std::pair<Call, double> calls[] = {{sum(DType::bf16, DType::bf16), 2 * ring},
                                             {norm(false), 2 * ring},
                                             {norm(true), 2 * ring},
                                             {library, 2 * ring},
                                             {sum(DType::f32, DType::f32), 2 * ring},
                                             {gather, ring},
                                             {exchange, ring}};
    for (const auto& [call, share] : calls) {
      TROUPE_TRY(const double us, mean_us(rank, bytes, call));
      line +=
          fmt::format(" {:>8.1f} ({:>5.1f})", us, share * static_cast<double>(bytes) / us / 1e3);
    }
    if (prints) fmt::print("{}\n", line);
  }
  return {};
}

Result<void> run(int own, int size, const SharedMemory& region) {
  Rank rank;
  TROUPE_TRY(UniqueFd fd, region.duplicate_fd());
  TROUPE_TRY(SharedMemory mapped, SharedMemory::map(std::move(fd)));
  TROUPE_TRY(rank.host, ShmCollectives::attach(std::move(mapped), own, size));
  TROUPE_TRY(rank.ops, make_cuda_ops({.device = own, .dtype = DType::f32}));
  TROUPE_TRY(rank.device, join_cuda_ranks(*rank.ops, *rank.host, {"bench"}));
  TROUPE_CHECK(rank.device->barrier());
  return measure(rank);
}

int run_all(int size) {
  auto region = SharedMemory::create(shm_collectives_bytes(size));
  if (!region.ok()) return 1;
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const Result<void> done = run(rank, size, *region);
      if (!done.ok()) fmt::print(stderr, "rank {}: {}\n", rank, done.error().message);
      std::fflush(stdout);
      ::_exit(done.ok() ? 0 : 1);
    }
    ranks.push_back(pid);
  }
  int failed = 0;
  for (const pid_t pid : ranks) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    failed += status == 0 ? 0 : 1;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  const int size = argc > 1 ? std::atoi(argv[1]) : 2;
  if (size < 2 || size > 8) {
    fmt::print(stderr, "bench_gpu_collectives [GPUs, 2 to 8]\n");
    return 2;
  }
  return troupe::run_all(size);
}
