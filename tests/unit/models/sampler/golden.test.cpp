#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/sampler/sampler.hpp"
#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

/// The chi-square value that `degrees` of freedom exceed with probability 1e-4 (Wilson and Hilferty
/// 1931; within 1% from 2 degrees up).
double critical_chi_square(int degrees) {
  const double a = 2.0 / (9.0 * degrees);
  return degrees * std::pow(1.0 - a + 3.719 * std::sqrt(a), 3);
}

TEST(SamplerGolden, draws_from_the_distributions_of_a_real_model_in_vllms_order) {
  const std::string folder = test::source_path("tests/data/sampler/");
  std::ifstream json_file(folder + "fable-dense.json");
  ASSERT_TRUE(json_file) << "cannot open " << folder << "fable-dense.json";
  const auto golden = nlohmann::json::parse(json_file);
  std::ifstream logits_file(folder + "fable-dense.f32", std::ios::binary);
  SamplingParams params;
  params.temperature = golden["temperature"];
  params.top_k = golden["top_k"];
  params.top_p = golden["top_p"];
  params.min_p = golden["min_p"];
  std::vector<float> logits(golden["vocab"].get<std::size_t>());
  SamplerScratch scratch;
  constexpr int draws = 20000;

  ASSERT_GE(golden["cases"].size(), 3U);
  for (const auto& entry : golden["cases"]) {
    const auto name = entry["name"].get<std::string>();
    ASSERT_TRUE(logits_file.read(reinterpret_cast<char*>(logits.data()),
                                 static_cast<std::streamsize>(logits.size() * sizeof(float))))
        << name;
    params.seed = 1000 + params.seed;
    std::map<std::int32_t, int> counts;
    for (std::uint64_t position = 0; position < draws; ++position) {
      ++counts[sample(logits, params, position, 0, scratch).id];
    }

    double chi_square = 0;
    double pooled_expected = 0;
    int pooled = 0;
    int bins = 0;
    const auto add_bin = [&](double expected, int found) {
      chi_square += (found - expected) * (found - expected) / expected;
      ++bins;
    };
    for (const auto& pair : entry["distribution"]) {
      const auto id = pair[0].get<std::int32_t>();
      const double expected = pair[1].get<double>() * draws;
      const int found = counts[id];
      counts.erase(id);
      if (expected >= 5) {
        add_bin(expected, found);
      } else {
        pooled_expected += expected;
        pooled += found;
      }
    }
    if (pooled_expected > 0) add_bin(pooled_expected, pooled);
    EXPECT_TRUE(counts.empty()) << name << ": id " << counts.begin()->first
                                << " is outside the support";
    ASSERT_GE(bins, 2) << name;
    EXPECT_LT(chi_square, critical_chi_square(bins - 1)) << name << " with " << bins << " bins";
  }
}

}  // namespace
}  // namespace troupe
