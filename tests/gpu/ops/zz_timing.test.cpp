#include <chrono>
#include <cstdio>
#include <gtest/gtest.h>
#include "tests/gpu/ops/both_devices.hpp"
namespace troupe {
namespace {
class Timing : public BothDevices {};
INSTANTIATE_TEST_SUITE_P(Dtypes, Timing, testing::Values(DType::bf16));
TEST_P(Timing, grid) {
  struct S { std::int64_t h, k, d; };
  for (const S& s : {S{32, 8, 128}, S{16, 8, 128}, S{32, 4, 128}, S{64, 8, 64}, S{16, 8, 256}, S{8,1,128}}) {
    const AttentionShape shape{.heads = s.h, .kv_heads = s.k, .head_dim = s.d, .scale = 0.09F};
    const std::int64_t blocks = 70000 * 8 / s.k * 128 / s.d / 4;
    auto kv = gpu_->attention().allocate_kv(blocks, 16, shape, DType::bf16);
    ASSERT_TRUE(kv.ok());
    const KvLayer layer{kv->first, kv->second};
    for (const Tensor& t : {layer.keys, layer.values}) {
      const HostTensor r = random({1 << 22});
      const HostTensor n(DType::bf16, {1 << 22});
      for (int i = 0; i < (1 << 22); ++i) n->as<BFloat16>()[i] = to_bfloat16(r->as<float>()[i]);
      for (std::int64_t at = 0; at + (1 << 22) <= t.elements(); at += 1 << 22) {
        gpu_->memory().upload(n, Tensor(t.as<std::uint16_t>() + at, DType::bf16, {1 << 22}));
      }
      (void)gpu_->stream().synchronize();
    }
    const bool main = s.h == 32 && s.k == 8;
    for (const std::int64_t prefix : main ? std::vector<std::int64_t>{128, 256, 512, 1024, 2048, 4000, 8000} : std::vector<std::int64_t>{512, 4000}) {
      for (const std::int64_t rows : main ? std::vector<std::int64_t>{2, 4, 8, 16, 32, 64, 128, 256} : std::vector<std::int64_t>{8, 32, 128}) {
        const std::int64_t own = 256, pb = prefix / 16, ob = own / 16;
        std::vector<std::int32_t> table; std::vector<SequenceSpan> spans;
        const auto places = shuffled(std::min<std::int64_t>(blocks, pb + rows * ob));
        for (std::int64_t r = 0; r < rows; ++r) {
          spans.push_back({int(r), 1, int(pb * 16 + own - 1), int(table.size())});
          for (int b = 0; b < pb; ++b) table.push_back(places[b]);
          for (int b = 0; b < ob; ++b) table.push_back(places[pb + r * ob + b]);
        }
        const DeviceTensor tables = exact(integers(table, {std::ssize(table)})), z = exact(integers(std::vector<std::int32_t>(rows), {rows})),
           sp = exact(integers(numbers_of(spans), {rows, 4}));
        const HostTensor hq = random({rows, s.h * s.d});
        const DeviceTensor q = activation(hq), out = room(DType::bf16, hq->shape());
        const std::int64_t used = pb + rows * ob, layers = std::min<std::int64_t>(30, blocks / used);
        const auto at = [&](int i) { const std::int64_t f = i % layers * used; return KvLayer{layer.keys.rows(f, used), layer.values.rows(f, used)}; };
        double us[2] = {};
        bool on = false;
        for (int shares = 0; shares < 2; ++shares) {
          AttentionBatch b{z, z, tables, spans, 16, sp, true};
          if (shares) b.host_block_tables = table;
          double plan_us = 0;
          for (int i = 0; i < 3; ++i) {
            const auto t0 = std::chrono::steady_clock::now();
            on = gpu_->attention().plan(shape, b).layout != 0;
            plan_us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - t0).count();
            (void)gpu_->stream().synchronize();
          }
          if (shares && rows >= 128) std::printf("[plan %.0f us] ", plan_us);
          gpu_->attention().attend(q, shape, b, layer, out);
          auto g = gpu_->stream().capture([&]() -> Result<void> { for (int i = 0; i < 30; ++i) gpu_->attention().attend(q, shape, b, at(i), out); return {}; });
          double best = 1e9;
          for (int i = 0; i < 6; ++i) {
            (void)gpu_->stream().synchronize();
            const auto t0 = std::chrono::steady_clock::now();
            gpu_->stream().replay(**g);
            (void)gpu_->stream().synchronize();
            best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - t0).count() / 30);
          }
          us[shares] = best;
        }
        const double saved = double(rows - 1) * prefix * 4 * s.k * s.d / 1e6;
        std::printf("%ld/%ldx%ld prefix %5ld rows %4ld: plain %7.1f shared %7.1f ratio %.2f saved MB %.1f %s\n", s.h, s.k, s.d, prefix, rows, us[0], us[1], us[0] / us[1], saved, on ? "" : "off");
      }
    }
  }
}
}  // namespace
}  // namespace troupe
