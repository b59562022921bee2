// Grouped GEMMs with every number of rows at which a tile ends, by each tiling.
#include <numeric>

#include <fmt/format.h>

#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

class ExpertRows : public BothDevices {
 protected:
  struct Matrix {
    std::int64_t n, k;
  };

  /// Makes the tokens of these experts choose one expert each, in shuffled order; tokens that chose
  /// experts of other ranks come last, so that a rank's rows are the first of its output.
  HostTensor choose(const std::vector<std::int64_t>& rows, std::int64_t first,
                    std::int64_t of_others) {
    std::vector<std::int32_t> ids;
    for (std::size_t e = 0; e < rows.size(); ++e) {
      ids.insert(ids.end(), static_cast<std::size_t>(rows[e]),
                 static_cast<std::int32_t>(first + static_cast<std::int64_t>(e)));
    }
    std::ranges::shuffle(ids, engine_);
    for (std::int64_t i = 0; i < of_others; ++i) {
      ids.push_back(static_cast<std::int32_t>(
          i % 2 == 0 ? first - 1 : first + static_cast<std::int64_t>(rows.size())));
    }
    return integers(ids, {static_cast<std::int64_t>(ids.size()), 1});
  }

  void expect_same_bits(const Tensor& found, const Tensor& expected, const std::string& what) {
    for (std::int64_t i = 0; i < expected.elements(); ++i) {
      ASSERT_EQ(found.as<float>()[i], expected.as<float>()[i]) << what << ", element " << i;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Dtypes, ExpertRows, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(ExpertRows, are_multiplied_alike_however_they_are_cut) {
  const std::vector<std::int64_t> rows{0, 1, 127, 128, 129, 0, 256, 257, 64, 65, 385, 7};
  const auto local = static_cast<std::int64_t>(rows.size());
  const std::int64_t valid = std::reduce(rows.begin(), rows.end());
  constexpr std::int64_t first = 3, of_others = 150;
  const HostTensor ids = choose(rows, first, of_others);
  const std::int64_t tokens = ids->elements();
  const HostTensor offsets(DType::i32, {local + 1}), source(DType::i32, {tokens});
  const DeviceTensor gpu_offsets = room(DType::i32, {local + 1}), gpu_source = exact(source);
  cpu_->moe().permute(ids, first, {offsets, source});
  gpu_->moe().permute(exact(ids), first, {gpu_offsets, gpu_source});
  // The last tile's columns are few; a block has none of an odd tile; k ends within a unit's tile.
  for (const auto& [n, k] : {Matrix{272, 200}, Matrix{1040, 72}, Matrix{512, 256}}) {
    std::vector<HostTensor> owners;
    for (std::int64_t e = 0; e < local; ++e) owners.push_back(random({n, k}, 0.1F));
    const std::vector<Tensor> views(owners.begin(), owners.end());
    auto on_cpu = cpu_->weights().prepare_grouped(views, 1, WeightEncoding::plain);
    auto on_gpu = gpu_->weights().prepare_grouped(views, 1, WeightEncoding::plain);
    ASSERT_TRUE(on_cpu.ok() && on_gpu.ok());
    const HostTensor x = random({tokens, k}), product(DType::f32, {tokens, n}),
                     scratch(DType::f32, {tokens, n}), gated(DType::f32, {tokens, n / 2});
    const DeviceTensor gpu_x = activation(x), gpu_scratch = room(GetParam(), {tokens, n});
    cpu_->moe().grouped_linear(**on_cpu, x, {offsets, source}, 1, false, true, product);
    cpu_->moe().grouped_gate_up(**on_cpu, x, {offsets, source}, 1, scratch, gated);
    std::vector<HostTensor> of_first;
    // The expected rows select how experts are cut: by 16, 32, 64 and 256 rows.
    for (const std::int64_t likely : {local, 10 * local, 40 * local, 1000 * local}) {
      const std::string what = fmt::format("{} x {}, {} rows likely", n, k, likely);
      const ExpertBatch batch{gpu_offsets, gpu_source, likely};
      std::vector<HostTensor> found;
      for (const DType out_dtype : {DType::f32, GetParam()}) {
        const DeviceTensor out = room(out_dtype, {tokens, n});
        const HostTensor untouched = back(out);
        gpu_->moe().grouped_linear(**on_gpu, gpu_x, batch, 1, false, true, out);
        expect_equal(out->rows(0, valid), product->rows(0, valid), what);
        found.push_back(back(out));
        expect_same_bits(found.back()->rows(valid, of_others), untouched->rows(valid, of_others),
                         what + ", rows of other ranks");
      }
      const DeviceTensor out = room(GetParam(), {tokens, n / 2});
      gpu_->moe().grouped_gate_up(**on_gpu, gpu_x, batch, 1, gpu_scratch, out);
      expect_equal(out->rows(0, valid), gated->rows(0, valid), what + ", gated");
      found.push_back(back(out));
      if (of_first.empty()) of_first = std::move(found);
      for (std::size_t i = 0; i < found.size(); ++i) {
        expect_same_bits(found[i]->rows(0, valid), of_first[i]->rows(0, valid), what);
      }
    }
  }
}

}  // namespace
}  // namespace troupe
