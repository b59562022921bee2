#include "tests/support/hosts/slow_link.hpp"

#include <chrono>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "runtime/process/unique_fd.hpp"
#include "tests/process/hosts/support/cluster_settings.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::launcher_test {
namespace {

using namespace std::chrono_literals;

class SlowLinks : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto missing = test::missing_slow_links(); !missing.empty()) {
      GTEST_SKIP() << missing;
    }
  }

  // Runs a few requests on two hosts, one of which is behind a slow link: 20 ms each way, 10 MB/s.
  static void expect_same_bytes(const std::string& parallel, test::SlowLink::Options options = {}) {
    const std::string input = requests_of(batch_folder() / "batch-64.jsonl", 4,
                                          {{"return_token_ids", true}, {"max_tokens", 8}});
    const Answers one = answers_to(input);
    ASSERT_FALSE(one.empty());
    const LauncherJob job;
    job.write_input(input);
    std::vector<std::string> settings = on_hosts(2, 1);
    settings.push_back("parallel." + parallel);
    const test::SlowLink link(2, options);
    const Ended ended = job.run(as_arguments(settings));
    ASSERT_EQ(ended.code, 0) << ended.describe();
    expect_same_payloads(one, job.answers(), parallel + " behind a slow link");
    EXPECT_GT(link.carried_bytes(), 100'000u);
  }
};

TEST_F(SlowLinks, take_twenty_milliseconds_each_way) {
  const test::SlowLink link(2, {});
  sockaddr_in sshd{};
  sshd.sin_family = AF_INET;
  sshd.sin_port = htons(22);
  ASSERT_EQ(::inet_pton(AF_INET, test::host_address(2).c_str(), &sshd.sin_addr), 1);
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&sshd), sizeof(sshd)), 0);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 40ms);
}

TEST_F(SlowLinks, leave_a_host_its_addresses) {
  {
    const test::SlowLink link(2, {});
  }
  for (const char* address : {"10.77.0.2", "fd77::2"}) {
    const auto is_there = fmt::format("ip addr show dev eth0 | grep -q -F \" {}/\"", address);
    EXPECT_NO_THROW(test::on_host(2, is_there)) << address;
  }
}

TEST_F(SlowLinks, that_swallow_large_packets_are_found_before_anything_is_loaded) {
  const LauncherJob job;
  job.write_input(golden_input());
  std::vector<std::string> settings = on_hosts(2, 1);
  settings.emplace_back("parallel.pipeline_parallel_size=2");
  const test::SlowLink link(2, {.delay = 1ms, .largest_between_hosts = 1200});
  const Ended ended = job.run(as_arguments(settings));
  EXPECT_EQ(ended.code, 3) << ended.describe();
  EXPECT_NE(ended.err.find("does not reach h2 (small messages get through, 64 KiB did not"),
            std::string::npos)
      << ended.describe();
  EXPECT_NE(ended.err.find("MTU"), std::string::npos) << ended.describe();
}

TEST_F(SlowLinks, delay_two_stages_and_change_no_byte) {
  expect_same_bytes("pipeline_parallel_size=2");
}

TEST_F(SlowLinks, delay_two_tensor_ranks_and_change_no_byte) {
  expect_same_bytes("tensor_parallel_size=2");
}

TEST_F(SlowLinks, that_stall_for_a_second_now_and_then_lose_no_host) {
  expect_same_bytes("pipeline_parallel_size=2", {.stall_every = 2s, .stall = 1s});
}

}  // namespace
}  // namespace troupe::launcher_test
