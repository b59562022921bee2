// 64 requests over two hosts, one of which is behind a slow link (20 ms each way, 10 MB/s), also
// one that stalls for a second in every three: the bytes of one worker.

#include "tests/support/hosts/slow_link.hpp"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/hosts/support/cluster_settings.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/hosts/test_hosts.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::launcher_test {
namespace {

using namespace std::chrono_literals;

std::vector<Topology> four_topologies() {
  std::vector<Topology> found;
  for (const Topology& topology : topologies()) {
    for (const char* name : {"pp2", "tp2_sp", "tp2_pp2_sp", "dp2_tp2_ep4"}) {
      if (topology.name == name) found.push_back(topology);
    }
  }
  return found;
}

class SlowLinks : public testing::TestWithParam<Topology> {
 protected:
  void SetUp() override {
    if (const auto missing = test::missing_slow_links(); !missing.empty()) {
      GTEST_SKIP() << missing;
    }
  }

  static void expect_same_bytes(test::SlowLink::Options options) {
    const int requests = test::time_scale == 1 ? 64 : 6;  // sanitizers slow the kernels down
    const std::string input = requests_of(batch_folder() / "batch-64.jsonl", requests,
                                          {{"return_token_ids", true}, {"max_tokens", 12}});
    const LauncherJob job;
    job.write_input(input);
    std::vector<std::string> settings = on_hosts(2, workers_of(GetParam()) / 2);
    for (const auto& size : GetParam().parallel) settings.push_back("parallel." + size);
    const test::SlowLink link(2, options);
    const auto running = job.start(as_arguments(settings));
    const Ended ended = running->wait(4 * run_limit);
    ASSERT_EQ(ended.code, 0) << ended.describe();
    EXPECT_THAT(ended.err, ::testing::Not(::testing::HasSubstr("lost")));
    expect_same_payloads(answers_to(input), job.answers(), GetParam().name);
    EXPECT_GT(link.carried_bytes(), 100'000u);
  }
};

TEST_P(SlowLinks, delay_a_batch_and_change_no_byte) { expect_same_bytes({}); }

TEST_P(SlowLinks, that_stall_lose_no_host_and_change_no_byte) {
  expect_same_bytes({.stall_every = 3s, .stall = 1s});
}

INSTANTIATE_TEST_SUITE_P(Hosts, SlowLinks, testing::ValuesIn(four_topologies()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::launcher_test
