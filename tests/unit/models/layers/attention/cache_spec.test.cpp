#include "models/layers/attention/cache_spec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/layers/attention/stage_caches.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;

ModelConfig with_windows(std::vector<std::int64_t> windows) {
  ModelConfig config;
  config.layers = static_cast<std::int64_t>(windows.size());
  config.windows = std::move(windows);
  return config;
}

TEST(CacheGroups, are_one_where_all_layers_are_alike) {
  ModelConfig config;
  config.layers = 4;
  EXPECT_THAT(cache_groups(config), ElementsAre(CacheSpec{}));
  EXPECT_THAT(cache_groups(with_windows({32, 32})),
              ElementsAre(CacheSpec{CacheSpec::Kind::window, 32}));
  config.latent = LatentConfig{};
  EXPECT_THAT(cache_groups(config), ElementsAre(CacheSpec{CacheSpec::Kind::latent, 0}));
}

TEST(CacheGroups, stand_in_order_of_first_occurrence) {
  const ModelConfig config = with_windows({64, 0, 64, 16, 0, 16});
  EXPECT_THAT(cache_groups(config), ElementsAre(CacheSpec{CacheSpec::Kind::window, 64}, CacheSpec{},
                                                CacheSpec{CacheSpec::Kind::window, 16}));
  EXPECT_THAT(cache_groups_of_layers(config), ElementsAre(0U, 1U, 0U, 2U, 1U, 2U));
}

/// Every `period`-th of `layers` layers is full, the others have a window.
ModelConfig with_full_layers(std::int64_t layers, std::int64_t period) {
  std::vector<std::int64_t> windows;
  for (std::int64_t i = 0; i < layers; ++i) windows.push_back((i + 1) % period == 0 ? 0 : 1024);
  return with_windows(windows);
}

TEST(CacheGroups, have_equal_numbers_of_layers_where_these_divide) {
  // Gemma 3 12B: 8 full layers and 40 with a window.
  const ModelConfig config = with_full_layers(48, 6);
  EXPECT_EQ(cache_groups(config).size(), 6U);
  EXPECT_EQ(cache_tensors(stage_caches(config, {0, 48})), 8);
  EXPECT_EQ(cache_tensors(stage_caches(config, {0, 24})), 4);
}

TEST(CacheGroups, waste_at_most_a_tenth_of_the_cache) {
  for (const std::int64_t layers : {6, 26, 34, 35, 48, 62}) {
    for (const std::int64_t period : {2, 4, 5, 6, 7}) {
      const ModelConfig config = with_full_layers(layers, period);
      const auto groups = static_cast<std::int64_t>(cache_groups(config).size());
      const auto tensors = cache_tensors(stage_caches(config, {0, layers}));
      EXPECT_LE(10 * groups * tensors, 11 * layers) << layers << " layers, period " << period;
    }
  }
}

TEST(StageCaches, deal_the_layers_of_a_spec_to_its_groups_in_turn) {
  const ModelConfig config = with_windows({64, 64, 64, 0, 64, 0});
  const auto all = stage_caches(config, {0, 6});
  EXPECT_THAT(all, ElementsAre(StageCache{0, 0}, StageCache{1, 0}, StageCache{0, 1},
                               StageCache{2, 0}, StageCache{1, 1}, StageCache{2, 1}));
  EXPECT_EQ(cache_tensors(all), 2);
}

TEST(StageCaches, count_the_layers_of_their_own_stage) {
  const ModelConfig config = with_windows({64, 64, 64, 0, 64, 0});
  const auto second = stage_caches(config, {3, 3});
  EXPECT_THAT(second, ElementsAre(StageCache{2, 0}, StageCache{1, 0}, StageCache{2, 1}));
  EXPECT_EQ(cache_tensors(second), 2);
}

}  // namespace
}  // namespace troupe
