#include "tests/process/launcher/support/topologies.hpp"

#include "tests/process/launcher/support/launcher_job.hpp"

namespace troupe::launcher_test {

const std::vector<Topology>& topologies() {
  static const std::string dp2 = "data_parallel_size=2";
  static const std::string pp2 = "pipeline_parallel_size=2";
  static const std::string tp2 = "tensor_parallel_size=2";
  static const std::string ep2 = "expert_parallel_size=2";
  static const std::string sp = "sequence_parallel=true";
  static const std::vector<Topology> all = {
      {"tp2", {tp2}},
      {"tp4", {"tensor_parallel_size=4"}},
      {"pp2", {pp2}},
      {"pp4", {"pipeline_parallel_size=4"}},
      {"dp2", {dp2}},
      {"tp2_sp", {tp2, sp}},
      {"tp2_pp2_sp", {tp2, pp2, sp}},
      {"dp2_pp2", {dp2, pp2}},
      {"tp2_ep2", {tp2, ep2}, true},
      {"dp2_ep2", {dp2, ep2}, true},
      {"tp2_pp2_ep2_sp", {tp2, pp2, ep2, sp}, true},
      {"tp4_ep2", {"tensor_parallel_size=4", ep2}, true},
      {"dp2_tp2_ep4", {dp2, tp2, "expert_parallel_size=4"}, true},
      {"dp2_pp2_ep2", {dp2, pp2, ep2}, true},
      {"one", {}},
  };
  return all;
}

void expect_the_bytes_of_one_rank(const Topology& topology, const std::string& collectives,
                                  const std::filesystem::path& model) {
  constexpr std::size_t all = 64;
  const std::string input =
      requests_of(batch_folder() / "batch-64.jsonl", all, {{"return_token_ids", true}});
  std::vector<std::string> settings = {"parallel.collectives=" + collectives};
  // Not where a model with experts has its own default.
  if (!topology.experts) settings.emplace_back("parallel.expert_parallel_size=1");
  for (const std::string& size : topology.parallel) settings.push_back("parallel." + size);
  const Answers one = answers_to(input, {}, 0, model);
  ASSERT_EQ(one.size(), all);
  expect_same_payloads(one, answers_to(input, settings, 0, model),
                       topology.name + " over " + collectives);
}

}  // namespace troupe::launcher_test
