#include <cmath>

#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

TEST(Perplexity, of_single_windows_is_that_of_transformers) {
  REQUIRE_OK(const auto windows, read_windows());
  for (const std::string name : {"fable-moe", "fable-draft"}) {
    REQUIRE_OK(const auto golden, read_perplexity(name));
    REQUIRE_OK(const auto loaded, load(golden_model(name)->checkpoint, DType::f32));
    for (const std::size_t window : {0, 5, 78}) {
      REQUIRE_OK(const double nll, window_nll(*loaded.runner, windows.at(window)));
      EXPECT_NEAR(nll, golden.window_nll.at(window), 1e-4) << name << ", window " << window;
    }
  }
}

}  // namespace
}  // namespace troupe::golden
