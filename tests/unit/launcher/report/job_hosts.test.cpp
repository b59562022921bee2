#include "launcher/report/job_hosts.hpp"

#include <gtest/gtest.h>

#include "tests/unit/launcher/report/small_job.hpp"

namespace troupe::report_test {
namespace {

using nlohmann::ordered_json;

JobHosts two_hosts() {
  return {.hosts = {{"h1", "10.0.0.1", {0}}, {"h2", "10.0.0.2", {1, 2}}},
          .links = {{"h1", "h2", 0.0002, 1e6}}};
}

/// Three workers, each of which has sent 1000 bytes to the other host and got 400, and a launcher.
std::vector<ProcessTelemetry> processes() {
  std::vector<ProcessTelemetry> all;
  for (const int rank : {0, 1, 2}) {
    all.push_back(worker(rank, rank == 2 ? 20 : 10));
    const std::string local = rank == 0 ? "10.0.0.1" : "10.0.0.2";
    const std::string peer = rank == 0 ? "10.0.0.2" : "10.0.0.1";
    all.back().traffic = {{local, peer, 1000, 400}};
  }
  ProcessTelemetry driver;
  driver.process = "driver";
  driver.role = ProcessRole::driver;
  driver.traffic = {{"10.0.0.254", "10.0.0.2", 70, 10}};
  all.push_back(driver);
  return all;
}

TEST(JobHosts, have_the_means_of_their_ranks_and_the_sums_of_their_bytes) {
  const ordered_json hosts = hosts_json(two_hosts(), processes());
  ASSERT_EQ(hosts.size(), 2U);
  EXPECT_EQ(hosts[0].at("host"), "h1");
  EXPECT_EQ(hosts[0].at("ranks"), ordered_json::array({0}));
  EXPECT_EQ(hosts[0].at("sent_bytes"), 1000);
  EXPECT_EQ(hosts[0].at("received_bytes"), 2000);
  EXPECT_EQ(hosts[1].at("sent_bytes"), 2000);
  EXPECT_EQ(hosts[1].at("received_bytes"), 1070);
  EXPECT_DOUBLE_EQ(hosts[0].at("exchange_seconds"), 0.02);
  EXPECT_DOUBLE_EQ(hosts[1].at("exchange_seconds"), 0.03) << "the mean of 10 and 20 steps of 2 ms";
}

TEST(JobHosts, have_links_with_most_bytes_first_and_what_was_measured_of_them) {
  const ordered_json links = links_json(two_hosts(), processes());
  ASSERT_EQ(links.size(), 3U);
  EXPECT_EQ(links[0].at("from"), "h2");
  EXPECT_EQ(links[0].at("bytes"), 2000);
  EXPECT_DOUBLE_EQ(links[0].at("bytes_per_second"), 2000) << "they served for a second";
  EXPECT_EQ(links[0].at("latency_ms"), nullptr);
  EXPECT_EQ(links[1].at("to"), "h2");
  EXPECT_DOUBLE_EQ(links[1].at("seconds_at_that_rate"), 0.001);
  EXPECT_DOUBLE_EQ(links[1].at("latency_ms"), 0.2);
  EXPECT_EQ(links[2].at("from"), "launcher");
}

TEST(JobHosts, are_none_in_a_job_of_this_machine) {
  EXPECT_EQ(hosts_json({}, processes()), ordered_json::array());
  EXPECT_EQ(links_json({}, processes()), ordered_json::array());
}

}  // namespace
}  // namespace troupe::report_test
