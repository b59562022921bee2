#include "tests/process/launcher/support/topologies.hpp"

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::launcher_test {

const std::vector<Topology>& topologies() {
  static const std::string dp2 = "data_parallel_size=2";
  static const std::string pp2 = "pipeline_parallel_size=2";
  static const std::string tp2 = "tensor_parallel_size=2";
  static const std::string ep2 = "expert_parallel_size=2";
  static const std::string cp2 = "context_parallel_size=2";
  static const std::string sp = "sequence_parallel=true";
  static const std::string dpa = "data_parallel_attention=true";
  static const std::vector<Topology> all = {
      {"tp2", {tp2}},
      {"tp4", {"tensor_parallel_size=4"}},
      {"pp2", {pp2}},
      {"pp4", {"pipeline_parallel_size=4"}},
      {"dp2", {dp2}},
      {"cp2", {cp2}},
      {"cp3", {"context_parallel_size=3"}},
      {"cp2_tp2_sp", {cp2, tp2, sp}},
      {"cp2_pp2", {cp2, pp2}},
      {"dp2_cp2", {dp2, cp2}},
      {"tp2_sp", {tp2, sp}},
      {"tp2_pp2_sp", {tp2, pp2, sp}},
      {"dp2_pp2", {dp2, pp2}},
      {"dp2_tp2", {dp2, tp2}},
      {"dp2_dpa", {dp2, dpa}},
      {"dp2_pp2_dpa", {dp2, pp2, dpa}},
      {"dp2_tp2_dpa", {dp2, tp2, dpa}},
      {"tp2_ep2", {tp2, ep2}, true},
      {"cp2_tp2_ep2", {cp2, tp2, ep2}, true},
      {"dp2_ep2", {dp2, ep2}, true},
      {"tp2_pp2_ep2_sp", {tp2, pp2, ep2, sp}, true},
      {"tp4_ep2", {"tensor_parallel_size=4", ep2}, true},
      {"dp2_tp2_ep4", {dp2, tp2, "expert_parallel_size=4"}, true},
      {"dp2_pp2_ep2", {dp2, pp2, ep2}, true},
      {"dp2_ep2_dpa", {dp2, ep2, dpa}, true},
      {"dp4_ep4_dpa", {"data_parallel_size=4", "expert_parallel_size=4", dpa}, true},
      {"dp2_pp2_ep2_dpa", {dp2, pp2, ep2, dpa}, true},
  };
  return all;
}

int workers_of(const Topology& topology) {
  int workers = 1;
  for (const std::string& size : topology.parallel) {
    const auto equals = size.find('=');
    if (size.starts_with("expert") || size.ends_with("=true")) continue;
    workers *= std::stoi(size.substr(equals + 1));
  }
  return workers;
}

std::vector<std::string> settings_of(const Topology& topology) {
  std::vector<std::string> settings;
  // A model with experts has its own default.
  if (!topology.experts) settings.emplace_back("parallel.expert_parallel_size=1");
  for (const std::string& size : topology.parallel) settings.push_back("parallel." + size);
  return settings;
}

void expect_the_bytes_of_one_rank(const Topology& topology, const std::string& collectives,
                                  const std::string& input, const std::filesystem::path& model,
                                  const std::vector<std::string>& engine) {
  const Answers one = answers_to(input, {}, 0, model);
  ASSERT_FALSE(one.empty());
  const LauncherJob job(model);
  job.write_input(input);
  std::vector<std::string> settings = settings_of(topology);
  settings.push_back("parallel.collectives=" + collectives);
  for (const std::string& setting : engine) settings.push_back("engine." + setting);
  const Ended ended = job.run(as_arguments(settings));
  ASSERT_EQ(ended.code, 0) << ended.describe();
  int workers = 0;
  for (const auto& file : std::filesystem::directory_iterator(job.folder() / "out.jsonl.job")) {
    if (file.path().filename().string().starts_with("worker-")) ++workers;
  }
  EXPECT_EQ(workers, workers_of(topology)) << "logs of workers";
  expect_same_payloads(one, job.answers(), topology.name + " over " + collectives);
}

std::string golden_input() {
  // Sanitizers slow the kernels down twentyfold; a few requests exercise the same code.
  const int requests = test::time_scale == 1 ? 64 : 6;
  return requests_of(batch_folder() / "batch-64.jsonl", requests, {{"return_token_ids", true}});
}

}  // namespace troupe::launcher_test
