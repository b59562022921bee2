#include "launcher/machine/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::HasSubstr;

Gpus parsed(const char* text) {
  const auto gpus = parse_gpus(text);
  EXPECT_TRUE(gpus.ok()) << text << ": " << (gpus.ok() ? "" : gpus.error().message);
  return gpus.ok() ? *gpus : Gpus{};
}

TEST(Machine, has_cores_and_the_gpus_that_are_assumed) {
  EXPECT_GE(this_machine().cores, 1);
  EXPECT_GE(this_machine().gpus.count, 0);
  EXPECT_EQ(this_machine(Gpus{.count = 3}).gpus.count, 3);
}

TEST(AssumedGpus, are_a_kind_or_a_size_and_a_number) {
  EXPECT_EQ(parsed("H200:8").count, 8);
  EXPECT_EQ(parsed("h200").count, 1);
  EXPECT_EQ(parsed("H200").memory_bytes >> 30, 139U);
  EXPECT_EQ(parsed("H100:4").memory_bytes >> 30, 79U);
  EXPECT_EQ(parsed("80GB:2").memory_bytes, 80'000'000'000U);
  EXPECT_EQ(parsed("80GiB:2").memory_bytes, std::uint64_t{80} << 30);
  EXPECT_EQ(parsed("none").count, 0);
  for (const char* text : {"H200:8", "none"}) EXPECT_TRUE(parsed(text).assumed) << text;
}

TEST(AssumedGpus, that_this_version_does_not_run_on_or_know_are_refused) {
  for (const char* text : {"A100:8", "l40s"}) {
    const auto gpus = parse_gpus(text);
    ASSERT_FALSE(gpus.ok()) << text;
    EXPECT_EQ(gpus.error().code, ErrorCode::unsupported);
    EXPECT_THAT(gpus.error().message, HasSubstr("Hopper"));
  }
  for (const char* text :
       {"", ":8", "H200:", "H200:0", "H200:x", "H200:8:2", "80:2", "-1GB", "zebra"}) {
    const auto gpus = parse_gpus(text);
    ASSERT_FALSE(gpus.ok()) << text;
    EXPECT_EQ(gpus.error().code, ErrorCode::invalid_argument) << text;
  }
}

}  // namespace
}  // namespace troupe
