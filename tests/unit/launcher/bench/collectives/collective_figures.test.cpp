#include "launcher/bench/collectives/collective_figures.hpp"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/bench/collectives/group_timer.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;

CollectivesFigures two_calls() {
  CollectivesFigures figures{.device = "GPUs",
                             .dtype = "bf16",
                             .ceiling = "a message of 256 MiB between two GPUs",
                             .ceiling_bytes_per_second = 400e9};
  figures.groups.push_back({.group = "tensor", .ranks = 4});
  figures.groups[0].calls.push_back(
      {.call = "sum", .bytes = 64 << 20, .seconds = 500e-6, .library_seconds = 123456e-6});
  figures.groups[0].calls.push_back({.call = "exchange", .bytes = 8, .seconds = 10e-6});
  return figures;
}

TEST(CollectiveFigures, count_what_a_ring_would_carry) {
  EXPECT_DOUBLE_EQ(ring_share("sum", 4), 1.5);
  EXPECT_DOUBLE_EQ(ring_share("gather", 4), 0.75);
  EXPECT_DOUBLE_EQ(ring_share("message", 2), 1);
}

TEST(CollectiveFigures, are_a_table_that_fits_a_terminal) {
  const std::string table = to_table(two_calls());
  EXPECT_THAT(table, HasSubstr("tensor of 4 ranks"));
  EXPECT_THAT(table, HasSubstr("201.33"));
  EXPECT_THAT(table, HasSubstr("123456.0"));
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 79U) << line;
}

TEST(CollectiveFigures, have_the_librarys_own_where_there_is_one) {
  const auto json = to_json(two_calls());
  const auto& calls = json["groups"][0]["calls"];
  EXPECT_DOUBLE_EQ(calls[0]["bus_bytes_per_second"], 1.5 * (64 << 20) / 500e-6);
  EXPECT_DOUBLE_EQ(calls[0]["nccl_seconds"], 123456e-6);
  EXPECT_FALSE(calls[1].contains("nccl_seconds"));
}

// Uneven shares too: 72 bytes are nine words of three, three and three, and 8 are one of one rank.
TEST(GroupTimer, times_every_call_on_threads_of_a_cpu) {
  for (const char* collectives : {"shm", "network"}) {
    const auto figures = time_group({.group = "tensor",
                                     .ranks = 3,
                                     .calls = {"sum", "scatter", "gather", "exchange", "message"},
                                     .collectives = collectives,
                                     .bytes = {8, 72, 3000000},
                                     .seconds = 0.001});
    ASSERT_TRUE(figures.ok()) << collectives << ": " << figures.error().message;
    EXPECT_EQ(figures->ranks, 3);
    ASSERT_EQ(figures->calls.size(), 15U);
    for (const CollectiveFigure& call : figures->calls) {
      EXPECT_GT(call.seconds, 0) << collectives << ", " << call.call << " of " << call.bytes;
      EXPECT_EQ(call.library_seconds, 0) << call.call;
    }
  }
}

}  // namespace
}  // namespace troupe
