#include "models/model/layer_fallback.hpp"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/ops/cpu/cpu_ops.hpp"
#include "tests/support/require.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Layers 3 to 6, of which 5 rounds nothing and the others have a matrix [8, 16] each.
class LayerFallbackTest : public testing::Test {
 protected:
  void SetUp() override {
    REQUIRE_OK(ops_, make_cpu_ops({}));
    HostTensor numbers(DType::f32, {8, 16});
    for (std::int64_t i = 0; i < 128; ++i) numbers->as<float>()[i] = static_cast<float>(i % 7) - 3;
    RoundingMatrices matrices;
    for (const std::int64_t layer : {3, 4, 5, 6}) {
      const WeightEncoding encoding = layer == 5 ? WeightEncoding::int8 : WeightEncoding::w8a8;
      REQUIRE_OK(auto matrix, ops_->weights().prepare(numbers, 1, encoding));
      if (matrix->rounds_rows()) matrices.linear[layer].push_back(matrix.get());
      matrices_[layer] = std::move(matrix);
    }
    REQUIRE_OK(auto made, LayerFallback::create(*ops_, std::move(matrices), {3, 4}, 100.0F));
    fallback_.emplace(std::move(made));
  }

  /// A pass in which each layer, from the first on, has rows with this largest number.
  void pass(const std::vector<float>& largest) {
    for (std::size_t i = 0; i < largest.size(); ++i) {
      const auto layer = static_cast<std::int64_t>(i) + 3;
      fallback_->begin_layer(layer);
      multiply(layer, largest[i]);
    }
    fallback_->end_layers();
    multiply(3, 1e9F);  // of no layer
    fallback_->end_pass();
  }
  void multiply(std::int64_t layer, float largest) {
    const HostTensor x(DType::f32, {2, 16}), out(DType::f32, {2, 8});
    x->as<float>()[20] = -largest;
    ops_->dense().linear(*matrices_[layer], x, out);
  }
  std::vector<std::int32_t> told() {
    std::vector<std::int32_t> layers;
    for (const LayerPeak& peak : fallback_->take_peaks()) layers.push_back(peak.layer);
    return layers;
  }
  Result<bool> widen(std::vector<std::int32_t> layers) { return fallback_->widen(layers); }

  std::unique_ptr<Ops> ops_;
  std::map<std::int64_t, std::unique_ptr<Linear>> matrices_;
  std::optional<LayerFallback> fallback_;
};

TEST_F(LayerFallbackTest, tells_layers_beyond_the_bound_once_each) {
  pass({100.0F, 5.0F, 1e6F, 0.0F});
  EXPECT_THAT(told(), IsEmpty()) << "the bound itself may be reached, and layer 5 rounds nothing";
  pass({1.0F, 100.5F, 0.0F, std::numeric_limits<float>::infinity()});
  const std::vector<LayerPeak> peaks = fallback_->take_peaks();
  ASSERT_EQ(peaks.size(), 2U);
  EXPECT_EQ(peaks[0].layer, 4);
  EXPECT_EQ(peaks[0].largest, 100.5F);
  EXPECT_EQ(peaks[1].layer, 6);
  EXPECT_TRUE(std::isinf(peaks[1].largest));
  pass({1.0F, 2000.0F, 0.0F, 2000.0F});
  EXPECT_THAT(told(), IsEmpty());
  pass({101.0F, 0.0F, 0.0F, 0.0F});
  EXPECT_THAT(told(), ElementsAre(3));
}

TEST_F(LayerFallbackTest, widens_only_when_it_is_told_to_and_only_its_own_layers) {
  pass({0.0F, 500.0F, 0.0F, 0.0F});
  EXPECT_THAT(told(), ElementsAre(4));
  EXPECT_TRUE(matrices_[4]->rounds_rows());
  REQUIRE_OK(const bool of_others, widen({0, 2, 7, 1000}));
  EXPECT_FALSE(of_others);
  REQUIRE_OK(const bool any, widen({4, 9, 3}));
  EXPECT_TRUE(any);
  EXPECT_FALSE(matrices_[4]->rounds_rows());
  EXPECT_FALSE(matrices_[3]->rounds_rows()) << "another rank may have told of it";
  EXPECT_TRUE(matrices_[6]->rounds_rows());
  REQUIRE_OK(const bool again, widen({3, 4}));
  EXPECT_FALSE(again);
  pass({1e5F, 1e5F, 0.0F, 0.0F});
  EXPECT_THAT(told(), IsEmpty()) << "their rows are not rounded any more";
}

TEST_F(LayerFallbackTest, forgets_peaks_but_tells_widened_layers_to_a_new_executor) {
  pass({300.0F, 0.0F, 0.0F, 300.0F});
  EXPECT_THAT(told(), ElementsAre(3, 6));
  ASSERT_TRUE(widen({3}).ok());
  fallback_->restart();
  EXPECT_THAT(told(), ElementsAre(3));
  EXPECT_THAT(told(), IsEmpty());
  pass({0.0F, 0.0F, 0.0F, 200.0F});
  const auto peaks = fallback_->take_peaks();
  ASSERT_EQ(peaks.size(), 1U);
  EXPECT_EQ(peaks[0].layer, 6);
  EXPECT_EQ(peaks[0].largest, 200.0F);
}

}  // namespace
}  // namespace troupe
