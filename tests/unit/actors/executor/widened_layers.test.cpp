#include "actors/executor/widened_layers.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

void take(WidenedLayers& layers, std::int32_t rank, std::vector<LayerPeak> peaks) {
  layers.take(rank, peaks);
}

TEST(WidenedLayers, are_named_once_in_the_next_step_whoever_tells_of_them) {
  WidenedLayers layers;
  EXPECT_THAT(layers.take_due(4), IsEmpty());
  take(layers, 1, {{3, 900.0F}, {5, 700.0F}});
  take(layers, 0, {{3, 950.0F}});
  EXPECT_THAT(layers.take_due(5), ElementsAre(3, 5));
  EXPECT_THAT(layers.take_due(6), IsEmpty());
  take(layers, 2, {{5, 1e4F}, {0, std::numeric_limits<float>::infinity()}});
  EXPECT_THAT(layers.take_due(7), ElementsAre(0));
}

TEST(WidenedLayers, are_reported_with_who_saw_what_first_and_the_step) {
  WidenedLayers layers;
  take(layers, 1, {{3, 900.0F}});
  EXPECT_THAT(layers.take_new(), IsEmpty()) << "it is not in a plan yet";
  take(layers, 0, {{3, 950.0F}});
  (void)layers.take_due(17);
  const auto reported = layers.take_new();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(describe(reported[0]),
            "layer 3 computes with activations of full width from step 17 on: rank 1 had 900");
  EXPECT_THAT(layers.take_new(), IsEmpty());
}

TEST(WidenedLayers, are_named_again_to_workers_that_begin_anew_and_not_reported_again) {
  WidenedLayers layers;
  take(layers, 0, {{2, 900.0F}, {1, 900.0F}});
  (void)layers.take_due(9);
  EXPECT_EQ(layers.take_new().size(), 2U);
  take(layers, 0, {{6, 500.0F}});
  layers.restart();
  EXPECT_THAT(layers.take_due(1), ElementsAre(1, 2, 6));
  const auto reported = layers.take_new();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].layer, 6);
  take(layers, 3, {{1, 900.0F}});  // a worker tells what it has
  EXPECT_THAT(layers.take_due(2), IsEmpty());
}

}  // namespace
}  // namespace troupe
