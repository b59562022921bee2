#include "runtime/base/format_bytes.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(FormatBytes, gives_three_digits_and_a_unit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(10'235), "10.0 KiB");
  EXPECT_EQ(format_bytes(102'390), "100 KiB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes(std::uint64_t{3} << 30), "3.00 GiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16.0 EiB");
}

}  // namespace
}  // namespace troupe
