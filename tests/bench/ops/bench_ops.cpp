// Figures of the CPU's Ops: GEMMs beside the machine's FMA ceiling and oneDNN, attention, and the
// small operations. `bench_ops [threads [codes]]`, with `codes` only those; run with
// OMP_NUM_THREADS=threads for oneDNN. Every figure is the best of several short runs, which a
// shared machine can repeat.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <time.h>

#include "launcher/bench/ceilings/ceilings.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "tests/bench/ops/peers.hpp"

namespace troupe::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// The environment of the measurements.
struct Machine {
  int threads = 1;
  double ceiling = 0;  ///< GFLOP/s of FMAs

  /// CPU time of this thread if there is only one, so that other load distorts less; else the
  /// clock.
  double now() const {
    timespec time{};
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  double seconds_of(const std::function<void()>& body) const {
    body();
    double best = 1e9;
    int batch = 1;
    const auto begin = Clock::now();
    while (std::chrono::duration<double>(Clock::now() - begin).count() < 0.15) {
      const double start = now();
      int runs = 0;
      double spent = 0;
      do {
        for (int i = 0; i < batch; ++i) body();
        runs += batch;
        spent = now() - start;
      } while (spent < 0.003);
      batch = std::max(1, runs / 8);  // so that reading the clock costs nothing
      best = std::min(best, spent / runs);
    }
    return best;
  }
};

HostTensor filled(Shape shape, DType dtype = DType::f32) {
  HostTensor tensor(dtype, shape);
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < tensor->elements(); ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = static_cast<float>(state >> 8) * 0x1p-24F - 0.5F;
    if (dtype == DType::f32) {
      tensor->as<float>()[i] = value;
    } else {
      tensor->as<BFloat16>()[i] = to_bfloat16(value);
    }
  }
  return tensor;
}

struct Product {
  std::int64_t n, k;
  int segments;
  const char* what;
};

void bench_products(Ops& ops, const Machine& machine) {
  const Product products[] = {{2048, 2048, 1, "square"},     {2048, 2048, 8, "square, S = 8"},
                              {512, 256, 1, "qkv"},          {256, 256, 4, "o, S = 4"},
                              {1408, 256, 1, "gate and up"}, {256, 704, 8, "down, S = 8"},
                              {4096, 256, 1, "head"},        {16, 256, 1, "router"}};
  fmt::print(
      "product (GFLOP/s)      n     k  weights     M=1     M=8    M=64   M=512  of ceiling\n");
  for (const Product& p : products) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const HostTensor weight = filled({p.n, p.k}, dtype);
      auto linear = ops.weights().prepare(weight, p.segments, WeightEncoding::plain);
      if (!linear.ok()) std::exit(1);
      fmt::print("{:18} {:5} {:5}  {:7}", p.what, p.n, p.k, to_string(dtype));
      double rate = 0;
      for (const std::int64_t m : {1, 8, 64, 512}) {
        const HostTensor x = filled({m, p.k});
        const HostTensor out(DType::f32, {m, p.n});
        rate = 2e-9 * m * p.n * p.k /
               machine.seconds_of([&] { ops.dense().linear(**linear, x, out); });
        fmt::print(" {:7.1f}", rate);
      }
      fmt::print("  {:9.2f}\n", rate / machine.ceiling);
    }
    if (p.segments != 1) continue;
    if (!onednn_product(1, p.n, p.k)) continue;
    fmt::print("{:18} {:5} {:5}  {:7}", "  oneDNN", p.n, p.k, "f32");
    double rate = 0;
    for (const std::int64_t m : {1, 8, 64, 512}) {
      rate = 2e-9 * m * p.n * p.k / machine.seconds_of(onednn_product(m, p.n, p.k));
      fmt::print(" {:7.1f}", rate);
    }
    fmt::print("  {:9.2f}\n", rate / machine.ceiling);
  }
}

/// Products of codes beside those of bf16, with the matrices of Qwen3-0.6B: one row reads matrices
/// that lie in no cache of a core, in turn, as a pass does.
void bench_codes(Ops& ops, const Machine& machine) {
  const Product products[] = {{4096, 1024, 1, "qkv"},
                              {1024, 2048, 8, "o, S = 8"},
                              {6144, 1024, 1, "gate and up"},
                              {1024, 3072, 8, "down, S = 8"},
                              {151936, 1024, 1, "head"}};
  const std::pair<WeightEncoding, const char*> encodings[] = {{WeightEncoding::plain, "bf16"},
                                                              {WeightEncoding::int8, "int8"},
                                                              {WeightEncoding::w8a8, "w8a8"},
                                                              {WeightEncoding::fp8, "fp8"},
                                                              {WeightEncoding::int4, "int4"}};
  const double reads = measure_ceilings(machine.threads, 0.3).bytes_per_second / 1e9;
  fmt::print("codes; memory is read at {:.1f} GB/s\n", reads);
  fmt::print(
      "product                n     k  codes      M=1 us  of bf16     GB/s  of read  GFLOP/s at "
      "M=8, "
      "M=64, M=512\n");
  double totals[std::size(encodings)] = {};
  for (const Product& p : products) {
    const HostTensor weight = filled({p.n, p.k}, DType::bf16);
    double of_bf16 = 0;
    for (std::size_t e = 0; e < std::size(encodings); ++e) {
      const auto& [encoding, name] = encodings[e];
      std::vector<std::unique_ptr<Linear>> copies(
          static_cast<std::size_t>(std::max<std::int64_t>(1, (64 << 20) / (p.n * p.k))));
      for (auto& copy_of : copies) {
        auto made = ops.weights().prepare(weight, p.segments, encoding);
        if (!made.ok()) std::exit(1);
        copy_of = *std::move(made);
      }
      const HostTensor x = filled({512, p.k}), out(DType::f32, {512, p.n});
      std::size_t turn = 0;
      const auto multiply = [&](std::int64_t m) {
        ops.dense().linear(*copies[turn++ % copies.size()], x->rows(0, m), out->rows(0, m));
      };
      const double seconds = machine.seconds_of([&] { multiply(1); });
      if (e == 0) of_bf16 = seconds;
      totals[e] += seconds * (p.n > 100000 ? 1 : 28);
      const double rate = static_cast<double>(copies.front()->bytes()) / seconds / 1e9;
      fmt::print("{:17} {:6} {:5}  {:5}  {:10.1f}  {:7.2f}  {:7.1f}  {:7.2f}", p.what, p.n, p.k,
                 name, seconds * 1e6, of_bf16 / seconds, rate, rate / reads);
      for (const std::int64_t m : {8, 64, 512}) {
        if (p.n > 100000 && m > 8) break;
        fmt::print(" {:7.1f}",
                   2e-9 * m * p.n * p.k / machine.seconds_of([&, m = m] { multiply(m); }));
      }
      fmt::print("\n");
    }
  }
  for (std::size_t e = 1; e < std::size(encodings); ++e) {
    const bool is_int4 = encodings[e].first == WeightEncoding::int4;
    fmt::print(
        "the products of a token, 28 layers and head, {}: {:.1f} ms, {:.2f} of bf16's {:.1f}\n",
        is_int4 ? "all int4" : encodings[e].second, totals[e] * 1e3, totals[0] / totals[e],
        totals[0] * 1e3);
  }
}

/// Decode with cold caches: many layers, blocks anywhere.
void bench_attention(Ops& ops, const Machine& machine) {
  const AttentionShape shape{4, 2, 64, 0.125F};
  struct Case {
    const char* what;
    std::int32_t layers, sequences, rows, context;
  };
  const Case cases[] = {{"decode 64 x 160, cold", 8, 64, 1, 160},
                        {"decode 64 x 128, near", 1, 64, 1, 128},
                        {"decode 1 x 1024", 1, 1, 1, 1024},
                        {"prefill 1 x 512", 1, 1, 512, 512},
                        {"prefill 4 x 512", 1, 4, 512, 512}};
  const double pages = page_ceiling(machine.threads, std::size_t{84} << 20);
  fmt::print("reading 84 MiB by pages: {:.1f} GB/s\n", pages);
  for (const Case& c : cases) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::i8, DType::f8_e4m3, DType::i4x2}) {
      const std::int32_t per_sequence = (c.context + 15) / 16;
      const std::int32_t blocks = c.sequences * per_sequence;
      std::vector<std::pair<DeviceTensor, DeviceTensor>> layers;
      for (std::int32_t i = 0; i < c.layers; ++i) {
        auto cache = ops.attention().allocate_kv(blocks, 16, shape, dtype);
        if (!cache.ok()) std::exit(1);
        for (const Tensor& part : {Tensor(cache->first), Tensor(cache->second)}) {
          std::memset(part.data(), 0, part.bytes());  // otherwise all pages are one page of zeros
        }
        layers.push_back(*std::move(cache));
      }
      const HostTensor table(DType::i32, {blocks});
      std::iota(table->as<std::int32_t>(), table->as<std::int32_t>() + blocks, 0);
      std::shuffle(table->as<std::int32_t>(), table->as<std::int32_t>() + blocks, std::mt19937(1));
      std::vector<SequenceSpan> spans;
      for (std::int32_t s = 0; s < c.sequences; ++s) {
        spans.push_back({s * c.rows, c.rows, c.context - c.rows, s * per_sequence});
      }
      const HostTensor q = filled({c.sequences * c.rows, 4 * 64}), out(DType::f32, q->shape());
      const AttentionBatch batch{{}, {}, table, spans, 16, {}};
      const double seconds = machine.seconds_of([&] {
        for (const auto& [keys, values] : layers) {
          ops.attention().attend(q, shape, batch, KvLayer{keys, values}, out);
        }
      });
      double pairs = 0;  // of query and key
      for (std::int32_t r = 0; r < c.rows; ++r) pairs += c.context - c.rows + r + 1;
      const double flops = 4.0 * pairs * c.sequences * shape.heads * shape.head_dim * c.layers;
      const double bytes = 2.0 * static_cast<double>(layers.front().first->bytes()) * c.layers;
      fmt::print(
          "attention {:21} {:8}: {:8.1f} us  {:6.1f} GFLOP/s ({:.2f} of ceiling)  {:6.1f} "
          "GB/s of cache ({:.2f})\n",
          c.what, to_string(dtype), seconds * 1e6, flops / seconds / 1e9,
          flops / seconds / 1e9 / machine.ceiling, bytes / seconds / 1e9,
          bytes / seconds / 1e9 / pages);
    }
  }
}

void bench_rows(Ops& ops, const Machine& machine) {
  const HostTensor weight = filled({256}), head_norm = filled({64}), rope = filled({2048, 64});
  const AttentionShape shape{4, 2, 64, 0.125F};
  auto cache = ops.attention().allocate_kv(128, 16, shape, DType::f32);
  if (!cache.ok()) std::exit(1);
  const KvLayer layer{cache->first, cache->second};
  for (const std::int64_t m : {1, 64, 2048}) {
    const HostTensor x = filled({m, 256}), residual = filled({m, 256}), out(DType::f32, {m, 256});
    const HostTensor gate_up = filled({m, 1408}), inner(DType::f32, {m, 704});
    const HostTensor qkv = filled({m, 512}), q(DType::f32, {m, 256});
    const HostTensor positions(DType::i32, {m}), slots(DType::i32, {m});
    const HostTensor logits = filled({m, 16}), ids(DType::i32, {m, 4}), chosen(DType::f32, {m, 4});
    const HostTensor offsets(DType::i32, {17}), source(DType::i32, {m * 4});
    const HostTensor expert_rows = filled({m * 4, 256});
    for (std::int32_t i = 0; i < m; ++i) {
      positions->as<std::int32_t>()[i] = i;
      slots->as<std::int32_t>()[i] = i;
    }
    const AttentionBatch batch{positions, slots, {}, {}, 16, {}};
    const auto show = [&](const char* what, const std::function<void()>& body) {
      fmt::print("  {} {:.2f}", what, machine.seconds_of(body) * 1e6);
    };
    fmt::print("{} rows, us:", m);
    show("add_rms_norm", [&] { ops.dense().add_rms_norm(residual, x, weight, 1e-6F, out); });
    show("silu_mul", [&] { ops.dense().silu_mul(gate_up, inner); });
    show("norm_rope_store", [&] {
      ops.attention().norm_rope_store(qkv, head_norm, head_norm, 1e-6F, rope, shape, batch, layer,
                                      q);
    });
    show("route", [&] { ops.moe().route(logits, {}, {4, true}, ids, chosen); });
    show("permute", [&] { ops.moe().permute(ids, 0, {offsets, source}); });
    show("combine", [&] { ops.moe().combine(expert_rows, chosen, out); });
    fmt::print("\n");
  }
}

void bench_experts(Ops& ops, const Machine& machine) {
  for (const auto& [n, k, what] : {std::tuple{256, 256, "gate and up"}, {256, 128, "down"}}) {
    std::vector<HostTensor> owners;
    for (int e = 0; e < 16; ++e) owners.push_back(filled({n, k}, DType::bf16));
    const std::vector<Tensor> weights(owners.begin(), owners.end());
    auto grouped = ops.weights().prepare_grouped(weights, 1, WeightEncoding::plain);
    if (!grouped.ok()) std::exit(1);
    fmt::print("16 experts, {} [{}, {}]:", what, n, k);
    for (const std::int64_t tokens : {1, 8, 64, 512}) {
      const HostTensor ids(DType::i32, {tokens, 4}), offsets(DType::i32, {17});
      const HostTensor source(DType::i32, {tokens * 4}), out(DType::f32, {tokens * 4, n});
      for (std::int32_t i = 0; i < tokens * 4; ++i) {
        ids->as<std::int32_t>()[i] = (i / 4 * 5 + i % 4 * 3) % 16;
      }
      const HostTensor x = filled({tokens, k});
      ops.moe().permute(ids, 0, {offsets, source});
      const double seconds = machine.seconds_of(
          [&] { ops.moe().grouped_linear(**grouped, x, {offsets, source}, 4, true, false, out); });
      const double rate = 2e-9 * tokens * 4 * n * k / seconds;
      fmt::print("  {} tokens {:.1f} us, {:.1f} GFLOP/s ({:.2f})", tokens, seconds * 1e6, rate,
                 rate / machine.ceiling);
    }
    fmt::print("\n");
  }
}

void run(int threads, std::string_view part) {
  for (const CpuIsa isa : {CpuIsa::avx2, CpuIsa::avx512}) {
    if (!cpu_supports(isa)) continue;
    auto ops = make_cpu_ops({threads, DType::f32, isa});
    if (!ops.ok()) std::exit(1);
    const double most = measure_operations(threads, isa == CpuIsa::avx512, 0.3);
    const Machine machine{threads, most / 1e9};
    fmt::print("{} threads, {}: FMA ceiling {:.0f} GFLOP/s\n", threads,
               isa == CpuIsa::avx512 ? "AVX-512" : "AVX2", machine.ceiling);
    if (part != "codes") bench_products(**ops, machine);
    bench_codes(**ops, machine);
    if (part == "codes") continue;
    bench_attention(**ops, machine);
    bench_experts(**ops, machine);
    bench_rows(**ops, machine);
  }
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) {
  troupe::bench::run(argc > 1 ? std::atoi(argv[1]) : 1, argc > 2 ? argv[2] : "");
}
