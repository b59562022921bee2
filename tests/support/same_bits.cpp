#include "tests/support/same_bits.hpp"

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

namespace troupe::golden {

void expect_same_bits(std::span<const float> found, std::span<const float> expected,
                      std::string_view what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  ASSERT_FALSE(expected.empty()) << what;
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bits are what is compared
  const auto bits_differ = [](float a, float b) { return std::memcmp(&a, &b, sizeof a) != 0; };
  std::size_t different = 0;
  std::size_t first = found.size();
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!bits_differ(found[i], expected[i])) continue;
    ++different;
    first = std::min(first, i);
  }
  EXPECT_EQ(different, 0U) << what << ": " << different << " of " << found.size()
                           << " logits differ, first at " << first << ": found " << found[first]
                           << ", expected " << expected[first];
}

}  // namespace troupe::golden
