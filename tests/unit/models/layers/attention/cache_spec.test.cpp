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
  const ModelConfig config = with_windows({64, 0, 64, 16, 0});
  EXPECT_THAT(cache_groups(config), ElementsAre(CacheSpec{CacheSpec::Kind::window, 64}, CacheSpec{},
                                                CacheSpec{CacheSpec::Kind::window, 16}));
  EXPECT_EQ(cache_group_of(config, 2), 0U);
  EXPECT_EQ(cache_group_of(config, 3), 2U);
  EXPECT_EQ(cache_group_of(config, 4), 1U);
}

TEST(StageCaches, give_the_layers_of_each_group_the_first_tensors) {
  const ModelConfig config = with_windows({64, 64, 64, 0, 64, 0});
  const auto all = stage_caches(config, {0, 6});
  EXPECT_THAT(all, ElementsAre(StageCache{0, 0}, StageCache{0, 1}, StageCache{0, 2},
                               StageCache{1, 0}, StageCache{0, 3}, StageCache{1, 1}));
  EXPECT_EQ(cache_tensors(all), 4);
}

TEST(StageCaches, count_the_layers_of_their_own_stage) {
  const ModelConfig config = with_windows({64, 64, 64, 0, 64, 0});
  const auto second = stage_caches(config, {3, 3});
  EXPECT_THAT(second, ElementsAre(StageCache{1, 0}, StageCache{0, 0}, StageCache{1, 1}));
  EXPECT_EQ(cache_tensors(second), 2);
}

}  // namespace
}  // namespace troupe
