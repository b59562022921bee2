#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "tests/unit/models/ops/cpu/ops_fixture.hpp"

namespace troupe {
namespace {

/// One token's experts and weights.
struct Choice {
  std::vector<std::int32_t> ids;
  std::vector<double> weights;
};

/// Follows DeepSeek-V3's report (section 2.1.2), in double: sort, cut, add up.
Choice reference(const float* logits, const float* bias, std::int64_t experts,
                 const RouterOptions& options) {
  std::vector<double> scores, biased;
  for (std::int64_t e = 0; e < experts; ++e) {
    scores.push_back(1.0 / (1.0 + std::exp(-double{logits[e]})));
    biased.push_back(scores.back() + bias[e]);
  }
  const std::int64_t size = experts / options.groups;
  std::vector<std::pair<double, std::int64_t>> groups;
  for (std::int64_t g = 0; g < options.groups; ++g) {
    std::vector<double> own(biased.begin() + g * size, biased.begin() + (g + 1) * size);
    std::sort(own.rbegin(), own.rend());
    groups.push_back({-(own[0] + own[1]), g});
  }
  std::sort(groups.begin(), groups.end());
  std::vector<std::pair<double, std::int32_t>> order;
  for (std::int64_t i = 0; i < options.top_groups; ++i) {
    const std::int64_t g = groups[static_cast<std::size_t>(i)].second;
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
      order.push_back({-biased[static_cast<std::size_t>(e)], static_cast<std::int32_t>(e)});
    }
  }
  std::sort(order.begin(), order.end());
  Choice choice;
  double sum = 0.0;
  for (std::int64_t c = 0; c < options.top_k; ++c) {
    choice.ids.push_back(order[static_cast<std::size_t>(c)].second);
    sum += scores[static_cast<std::size_t>(choice.ids.back())];
  }
  for (const std::int32_t id : choice.ids) {
    choice.weights.push_back(scores[static_cast<std::size_t>(id)] /
                             (options.normalize ? sum : 1.0) * options.scale);
  }
  return choice;
}

TEST(GroupedRoute, agrees_with_double_precision_and_gives_the_same_bits_on_any_isa) {
  const std::int64_t tokens = 200;
  const RouterOptions all[] = {
      {.top_k = 4, .normalize = true, .sigmoid = true, .groups = 4, .top_groups = 2, .scale = 2.5F},
      {.top_k = 8, .normalize = false, .sigmoid = true, .groups = 8, .top_groups = 4},
      {.top_k = 3, .normalize = true, .sigmoid = true, .scale = 0.5F}};
  for (const RouterOptions& options : all) {
    for (const std::int64_t experts : {16, 40, 64}) {
      Random random(31);
      const HostTensor logits = random.normal({tokens, experts}, 2.0F);
      const HostTensor bias = random.normal({experts}, 0.3F);
      HostTensor first;
      for (const CpuIsa isa : supported_isas()) {
        SCOPED_TRACE(testing::Message()
                     << "seed 31, " << experts << " experts in " << options.groups << " groups");
        HostTensor ids(DType::i32, {tokens, options.top_k});
        HostTensor weights = floats({tokens, options.top_k});
        make_ops(2, DType::f32, isa)->moe().route(logits, bias, options, ids, weights);
        for (std::int64_t t = 0; t < tokens; ++t) {
          const Choice expected =
              reference(logits->as<float>() + t * experts, bias->as<float>(), experts, options);
          const auto found = ids->rows(t, 1).span<std::int32_t>();
          ASSERT_EQ(std::vector<std::int32_t>(found.begin(), found.end()), expected.ids)
              << "token " << t;
          expect_near(weights->rows(t, 1), expected.weights, 1e-6);
        }
        if (first->empty()) {
          first = std::move(weights);
        } else {
          expect_same_bits(weights, first);
        }
      }
    }
  }
}

TEST(GroupedRoute, chooses_by_the_bias_but_weighs_without_it) {
  const HostTensor logits = floats({1, 4});
  const HostTensor bias = floats({4});
  bias->as<float>()[2] = 5.0F;
  bias->as<float>()[3] = -0.25F;
  HostTensor ids(DType::i32, {1, 4}), weights = floats({1, 4});
  make_ops()->moe().route(logits, bias, {.top_k = 4, .sigmoid = true, .scale = 2.0F}, ids, weights);
  const auto chosen = ids->span<std::int32_t>();
  EXPECT_EQ(std::vector<std::int32_t>(chosen.begin(), chosen.end()),
            (std::vector<std::int32_t>{2, 0, 1, 3}));
  for (const float weight : weights->span<float>()) EXPECT_FLOAT_EQ(weight, 1.0F);
}

TEST(GroupedRoute, picks_different_experts_where_logits_are_not_finite) {
  for (const CpuIsa isa : supported_isas()) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinite = std::numeric_limits<float>::infinity();
    for (const float odd : {nan, infinite, -infinite}) {
      const HostTensor logits = floats({1, 8});
      std::fill_n(logits->as<float>(), 6, odd);
      const HostTensor bias = floats({8});
      HostTensor ids(DType::i32, {1, 4}), weights = floats({1, 4});
      make_ops(1, DType::f32, isa)
          ->moe()
          .route(logits, bias,
                 {.top_k = 4, .normalize = true, .sigmoid = true, .groups = 4, .top_groups = 2},
                 ids, weights);
      const auto chosen = ids->span<std::int32_t>();
      EXPECT_EQ(std::set(chosen.begin(), chosen.end()).size(), 4U) << odd;
    }
  }
}

TEST(AddBias, adds_the_bias_once_to_each_element) {
  for (const CpuIsa isa : supported_isas()) {
    Random random(37);
    const HostTensor x = random.normal({70, 45});
    const HostTensor bias = random.normal({45});
    HostTensor found = floats({70, 45});
    std::memcpy(found->data(), x->data(), x->bytes());
    make_ops(2, DType::f32, isa)->dense().add_bias(found, bias);
    for (std::int64_t i = 0; i < x->elements(); ++i) {
      ASSERT_EQ(found->as<float>()[i], x->as<float>()[i] + bias->as<float>()[i % 45])
          << "seed 37, element " << i;
    }
  }
}

}  // namespace
}  // namespace troupe
