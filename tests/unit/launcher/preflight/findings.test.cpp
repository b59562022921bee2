#include "launcher/preflight/findings.hpp"

#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/preflight/preflight.hpp"

namespace troupe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const CheckpointFacts checkpoint{
    .folder = "/models/m",
    .files = {{"config.json", 700, "700 bytes, hash 1"}, {"model.safetensors", 9000, "hash 2"}},
    .problem = {}};

PreflightNeeds needs_of(int nodes) {
  PreflightNeeds needs;
  needs.checkpoints = {checkpoint};
  needs.nodes.resize(static_cast<std::size_t>(nodes));
  needs.open_files = 200;
  return needs;
}

/// Nodes without a fault, "h1" and so on, each linked with all others.
std::vector<ProbedNode> good_nodes(int count) {
  std::vector<ProbedNode> nodes;
  for (int i = 1; i <= count; ++i) {
    ProbedNode node;
    node.name = fmt::format("h{}", i);
    node.facts.cores = 64;
    node.facts.cpu = "avx512";
    node.facts.memory_bytes = std::uint64_t{500} << 30;
    node.facts.disk_bytes = std::uint64_t{90} << 30;
    node.facts.open_files = 1024;
    node.facts.checkpoints = {checkpoint};
    for (int j = 1; j <= count; ++j) {
      if (j != i) node.links.push_back({fmt::format("h{}", j), {"", 0.0002, 1.1e9}});
    }
    nodes.push_back(node);
  }
  return nodes;
}

std::vector<std::string> lines_of(const std::vector<Finding>& findings) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings) {
    lines.push_back((finding.is_fatal ? "" : "warning: ") + describe(finding));
  }
  return lines;
}

TEST(Findings, are_none_for_nodes_that_have_all_the_job_needs) {
  EXPECT_THAT(lines_of(judge_nodes(needs_of(4), good_nodes(4))), IsEmpty());
}

TEST(Findings, warn_of_gpus_that_a_job_without_a_device_leaves_unused) {
  auto nodes = good_nodes(3);
  nodes[1].facts.gpus = 8;
  nodes[2].facts.gpus = 8;
  PreflightNeeds needs = needs_of(3);
  EXPECT_THAT(lines_of(judge_nodes(needs, nodes)), IsEmpty());
  needs.leaves_gpus = true;
  EXPECT_THAT(lines_of(judge_nodes(needs, nodes)),
              ElementsAre(AllOf(HasSubstr("warning: h2: its 8 GPUs are not used"),
                                HasSubstr("set cluster.device to cuda"))));
}

TEST(Findings, name_the_file_of_a_checkpoint_that_is_missing_short_or_another) {
  auto nodes = good_nodes(4);
  nodes[0].facts.checkpoints[0] = {"/models/m", {}, "No such file or directory"};
  nodes[1].facts.checkpoints[0].files.pop_back();
  nodes[2].facts.checkpoints[0].files[1].bytes = 8999;
  nodes[3].facts.checkpoints[0].files[0].mark = "700 bytes, hash 3";
  EXPECT_THAT(lines_of(judge_nodes(needs_of(4), nodes)),
              ElementsAre(HasSubstr("h1: there is no checkpoint in /models/m (No such file"),
                          HasSubstr("h2: there is no model.safetensors in /models/m"),
                          HasSubstr("h3: /models/m/model.safetensors has 8999 bytes, but the "
                                    "launcher's 9000"),
                          AllOf(HasSubstr("h4: /models/m/config.json has another content"),
                                HasSubstr("copy the launcher's there"))));
}

TEST(Findings, ignore_files_that_only_the_node_has) {
  auto nodes = good_nodes(1);
  nodes[0].facts.checkpoints[0].files.push_back({"notes.json", 1, ""});
  EXPECT_THAT(judge_nodes(needs_of(1), nodes), IsEmpty());
}

TEST(Findings, refuse_a_node_with_too_few_devices) {
  auto nodes = good_nodes(2);
  auto needs = needs_of(2);
  needs.nodes[0].gpus = needs.nodes[1].gpus = 4;
  nodes[0].facts.gpus = 4;
  nodes[1].facts.gpus = 1;
  EXPECT_THAT(
      lines_of(judge_nodes(needs, nodes)),
      ElementsAre("h2: it has 1 GPU that this build runs on, but 4 workers are to run there: "
                  "lower cluster.devices_per_node, or take other hosts"));
}

TEST(Findings, refuse_a_low_limit_of_open_files_and_warn_of_little_memory) {
  auto nodes = good_nodes(2);
  auto needs = needs_of(2);
  nodes[0].facts.open_files = 64;
  nodes[1].facts.memory_bytes = std::uint64_t{1} << 30;
  needs.nodes[1].weight_bytes = std::uint64_t{2} << 30;
  EXPECT_THAT(
      lines_of(judge_nodes(needs, nodes)),
      ElementsAre(AllOf(HasSubstr("h1: a process may have 64 open files, but needs up to "
                                  "200"),
                        HasSubstr("ulimit -Hn 200")),
                  HasSubstr("warning: h2: its workers' weights are 2.00 GiB, but 1.00 GiB")));
}

TEST(Findings, name_the_nodes_that_one_does_not_reach) {
  auto nodes = good_nodes(6);
  for (auto& link : nodes[0].links) link.facts = {"no route to host", 0, 0};
  nodes[1].links[0].facts = {"timed out", 0, 0};
  EXPECT_THAT(
      lines_of(judge_nodes(needs_of(6), nodes)),
      ElementsAre(AllOf(HasSubstr("h1: it does not reach h2, h3, h4 and 2 more (no route to "
                                  "host)"),
                        HasSubstr("cluster.ports")),
                  HasSubstr("h2: it does not reach h1 (timed out)")));
}

TEST(Findings, warn_of_a_slow_link_and_a_wrong_clock) {
  auto nodes = good_nodes(4);
  nodes[1].links[2].facts = {"", 0.0002, 1e7};
  nodes[3].links[1].facts = {"", 0.0002, 2e7};
  nodes[3].links[0].facts = {"", 0.0002, 1e7};  // but not from h1 to h4
  nodes[2].clock_ahead = -12.3;
  nodes[3].clock_ahead = 1.5;  // but may be off by as much
  nodes[3].clock_error = 1.0;
  EXPECT_THAT(
      lines_of(judge_nodes(needs_of(4), nodes)),
      ElementsAre(HasSubstr("warning: h2: its link to h4 takes 0.20 ms and carries 10 MB/s, "
                            "the median one 0.20 ms and 1100 MB/s"),
                  HasSubstr("warning: h3: its clock is 12.3 s behind the launcher's")));
}

TEST(Findings, warn_of_a_gpu_driver_that_differs_from_most) {
  auto nodes = good_nodes(3);
  for (auto& node : nodes) node.facts.gpu_driver = "550.54.15";
  nodes[1].facts.gpu_driver = "535.104";
  EXPECT_THAT(lines_of(judge_nodes(needs_of(3), nodes)),
              ElementsAre(HasSubstr("warning: h2: its GPU driver is 535.104, that of most nodes "
                                    "550.54.15")));
}

TEST(Findings, want_room_for_a_copy_only_where_there_is_no_equal_one) {
  auto needs = needs_of(4);
  needs.stage_folder = "~/copies";
  auto nodes = good_nodes(4);
  CheckpointFacts copy = checkpoint;
  copy.folder = "/root/copies/m-1";
  const CheckpointFacts none{copy.folder, {}, "No such file or directory"};
  for (auto& node : nodes) node.facts.staged = {none};  // an equal one of their own
  nodes[1].facts.checkpoints = {none};
  nodes[1].facts.staged = {copy};
  nodes[2].facts.checkpoints = {none};
  nodes[2].facts.stage_disk_bytes = 9699;
  nodes[3].facts.checkpoints = {none};
  nodes[3].facts.stage_disk_bytes = 9700;
  EXPECT_THAT(lines_of(judge_nodes(needs, nodes)),
              ElementsAre(AllOf(HasSubstr("h3: 9.47 KiB are free in ~/copies, but the copy of the "
                                          "checkpoint takes 9.47 KiB"),
                                HasSubstr("model.stage_folder"))));
  EXPECT_EQ(place_of(checkpoint, nodes[0].facts, 0), CheckpointPlace::own);
  EXPECT_EQ(place_of(checkpoint, nodes[1].facts, 0), CheckpointPlace::staged);
  EXPECT_EQ(place_of(checkpoint, nodes[3].facts, 0), CheckpointPlace::none);
}

TEST(Findings, refuse_a_copy_that_is_damaged_and_caches_at_different_paths) {
  auto needs = needs_of(3);
  needs.stage_folder = "~/copies";
  auto nodes = good_nodes(3);
  for (auto& node : nodes) node.facts.staged = {checkpoint};
  nodes[1].facts.staged[0].files[0].bytes = 3;
  nodes[2].facts.staged[0].folder = "/home/bob/copies/m-1";
  EXPECT_THAT(lines_of(judge_nodes(needs, nodes)),
              ElementsAre(HasSubstr("h2: the copy in /models/m is damaged: remove it"),
                          AllOf(HasSubstr("h3: its cache is /home/bob/copies/m-1, that of h1"),
                                HasSubstr("model.stage_folder"))));
}

TEST(Findings, refuse_a_copy_that_somebody_else_may_have_written) {
  auto needs = needs_of(2);
  needs.stage_folder = "/scratch";
  auto nodes = good_nodes(2);
  for (auto& node : nodes) node.facts.staged = {checkpoint};
  nodes[1].facts.staged[0].distrust = "/scratch/m-1 belongs to another user (uid 1001)";
  EXPECT_THAT(lines_of(judge_nodes(needs, nodes)),
              ElementsAre(AllOf(HasSubstr("h2: the copy in /models/m is not to be trusted"),
                                HasSubstr("uid 1001"), HasSubstr("model.stage_folder"))));
}

TEST(Findings, say_only_that_a_silent_node_could_not_be_looked_at) {
  auto nodes = good_nodes(2);
  nodes[1] = {.name = "h2",
              .address = {},
              .facts = {},
              .links = {},
              .problem = "it could not be looked at (x)"};
  EXPECT_THAT(lines_of(judge_nodes(needs_of(2), nodes)),
              ElementsAre(HasSubstr("h2: it could not be looked at (x)")));
}

TEST(PreflightTable, has_a_line_of_80_columns_at_most_for_each_node) {
  auto nodes = good_nodes(3);
  nodes[0].clock_ahead = -12345;
  nodes[0].links[0].facts = {"", 12.3, 123e9};
  nodes[1].facts.checkpoints[0].files.clear();
  nodes[2] = {.name = "h3", .address = {}, .facts = {}, .links = {}, .problem = "x"};
  const std::string table = preflight_table(needs_of(3), nodes);
  std::istringstream lines(table);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 80U) << line;
  EXPECT_EQ(count, 4);
  EXPECT_THAT(table,
              HasSubstr("h2              64 avx512    0  500 GiB 90.0 GiB +0.00 ms 0.20 ms   "
                        "1100  no\n"));
  EXPECT_THAT(table, HasSubstr("h3           not looked at\n"));
}

TEST(ProbedPeers, are_all_others_of_few_nodes_and_a_sample_of_many) {
  EXPECT_THAT(probed_peers(0, 1), IsEmpty());
  EXPECT_THAT(probed_peers(2, 4), ElementsAre(3, 0, 1));
  EXPECT_EQ(probed_peers(5, 64).size(), 63U);
  EXPECT_THAT(probed_peers(60, 65), ElementsAre(61, 62, 64, 3, 11, 27, 59));
}

TEST(CheckPreflight, gives_a_line_for_each_fatal_finding) {
  PreflightReport report;
  report.findings = {{"h1", false, "slow", "wait"}};
  EXPECT_TRUE(check_preflight(report).ok());
  report.findings.push_back({"h2", true, "full", "empty it"});
  report.findings.push_back({"h3", true, "gone", "fetch it"});
  EXPECT_EQ(check_preflight(report).error().message, "h2: full: empty it\nh3: gone: fetch it");
}

}  // namespace
}  // namespace troupe
