// How fast sequences' KV moves to host memory and back, beside plain copies of as many bytes in the
// same run, and how much that slows concurrent operations. The cache is shaped like
// Qwen3-30B-A3B's, sequences have 1,696 tokens. Prints medians.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "models/ops/cuda/cuda_ops.hpp"
#include "models/ops/cuda/memory/pinned_blocks.hpp"

namespace troupe {
namespace {

constexpr int layers = 48;
constexpr std::int32_t blocks_of_sequence = 106;
constexpr std::int32_t sequences = 16;

template <class T>
T checked(Result<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(1);
}

double seconds_of(Ops& ops, const std::function<void()>& enqueue) {
  const auto begin = std::chrono::steady_clock::now();
  enqueue();
  if (const auto done = ops.stream().synchronize(); !done.ok()) std::exit(1);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median_seconds(Ops& ops, const std::function<void(int)>& enqueue) {
  std::vector<double> tries;
  for (int i = 0; i < 5; ++i) tries.push_back(seconds_of(ops, [&] { enqueue(i); }));
  std::ranges::nth_element(tries, tries.begin() + 2);
  return tries[2];
}

/// A sequence's blocks, scattered over the cache, and in host memory.
std::vector<SwappedBlock> blocks_of(std::int32_t sequence) {
  std::vector<SwappedBlock> blocks;
  for (std::int32_t i = 0; i < blocks_of_sequence; ++i) {
    blocks.push_back(
        {i * sequences + (sequence + 5 * i) % sequences, sequence * blocks_of_sequence + i});
  }
  return blocks;
}

void run() {
  const auto ops = checked(make_cuda_ops({.device = 0, .dtype = DType::bf16}));
  const AttentionShape shape{.heads = 32, .kv_heads = 4, .head_dim = 128};
  constexpr std::int32_t blocks = blocks_of_sequence * sequences;
  std::vector<std::pair<DeviceTensor, DeviceTensor>> memory;
  std::vector<KvLayer> caches;
  for (int layer = 0; layer < layers; ++layer) {
    memory.push_back(checked(ops->attention().allocate_kv(blocks, 16, shape, DType::bf16)));
    caches.push_back({memory.back().first, memory.back().second});
  }
  const double block_bytes = 2.0 * layers * static_cast<double>(caches[0].keys.bytes()) / blocks;
  const double bytes = blocks_of_sequence * block_bytes;
  const auto swap = checked(ops->attention().make_swap(caches, blocks));

  const auto count = static_cast<std::int64_t>(bytes);
  const DeviceTensor device = checked(ops->memory().allocate(DType::u8, {count}));
  const DeviceTensor host = checked(ops->memory().allocate_host(DType::u8, {count}));
  const double plain_out = median_seconds(*ops, [&](int) { ops->memory().download(device, host); });
  const double plain_in = median_seconds(*ops, [&](int) { ops->memory().upload(host, device); });
  // Host memory is made now.
  double first = 0.0;
  for (std::int32_t s = 0; s < sequences; ++s) {
    first += seconds_of(*ops, [&] {
      swap->copy_out(blocks_of(s));
      swap->join();
    });
  }
  const double out = median_seconds(*ops, [&](int i) {
    swap->copy_out(blocks_of(i));
    swap->join();
  });
  const double in = median_seconds(*ops, [&](int i) {
    swap->copy_in(blocks_of(i));
    swap->join();
  });
  std::printf("a sequence of %.0f MB        ms    GB/s  of a plain copy\n", bytes * 1e-6);
  const auto row = [&](const char* name, double seconds, double plain) {
    std::printf("%-24s %6.2f  %6.1f  %14.0f %%\n", name, seconds * 1e3, bytes * 1e-9 / seconds,
                100.0 * plain / seconds);
  };
  row("out", out, plain_out);
  row("in", in, plain_in);
  row("out, to new memory", first / sequences, plain_out);

  std::printf("page-locking 4 GiB, GB/s with 1, 2, 4 and 8 threads:");
  for (const int threads : {1, 2, 4, 8}) {
    constexpr std::int64_t slabs = 128;
    constexpr std::size_t slab_bytes = std::size_t{32} << 20;
    const auto made = checked(HostBlocks::create({.blocks = slabs,
                                                  .block_bytes = slab_bytes,
                                                  .slab_bytes = slab_bytes,
                                                  .bytes_ahead = slabs * slab_bytes,
                                                  .threads = threads}));
    const double seconds = seconds_of(*ops, [&] { checked(made->at(slabs - 1)); });
    std::printf(" %.1f", 1e-9 * slabs * slab_bytes / seconds);
  }
  std::printf("\n");

  const Shape large{std::int64_t{1} << 14, std::int64_t{1} << 14};
  const DeviceTensor sum = checked(ops->memory().allocate(DType::bf16, large));
  const DeviceTensor added = checked(ops->memory().allocate(DType::bf16, large));
  const auto work = [&] {
    for (int i = 0; i < 60; ++i) ops->dense().add(sum, added);
  };
  const double alone = median_seconds(*ops, [&](int) { work(); });
  const double beside = median_seconds(*ops, [&](int i) {
    swap->copy_out(blocks_of(i));
    swap->copy_in(blocks_of(i + 5));
    work();
    swap->join();
  });
  std::printf(
      "operations of %.1f ms take %.1f ms beside one out and one in (%.1f ms by themselves)\n",
      alone * 1e3, beside * 1e3, (out + in) * 1e3);
}

}  // namespace
}  // namespace troupe

int main() {
  troupe::run();
  return 0;
}
