#include <gtest/gtest.h>

#include "tests/process/hosts/support/broken_batch.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"

// 24 faults of all kinds at random moments of a batch over four hosts, with experts over replicas
// and with stages.

namespace troupe::launcher_test {
namespace {

struct Case {
  const char* name;
  BrokenBatch batch;

  friend void PrintTo(const Case& of, std::ostream* out) { *out << of.name; }
};

constexpr const char* all_kinds = "worker,executor,stop,hang,agent,node,freeze,link";
/// Slurm's nodes here have no network devices of their own.
constexpr const char* all_but_link = "worker,executor,stop,hang,agent,node,freeze";

std::vector<Case> cases() {
  const std::vector<std::string> replicas = {"data_parallel_size=2", "tensor_parallel_size=2",
                                             "expert_parallel_size=4"};
  const std::vector<std::string> stages_of_replicas = {
      "data_parallel_size=2", "pipeline_parallel_size=2", "expert_parallel_size=2"};
  const std::vector<std::string> stages = {"pipeline_parallel_size=4"};
  return {
      {"experts_over_replicas_by_ssh", {"ssh", replicas, all_kinds, 24}},
      {"experts_over_replicas_of_stages_by_ssh", {"ssh", stages_of_replicas, all_kinds, 24}},
      {"stages_by_ssh", {"ssh", stages, all_kinds, 24}},
      {"experts_over_replicas_by_slurm", {"slurm", replicas, all_but_link, 24}},
      {"experts_over_replicas_of_stages_by_slurm", {"slurm", stages_of_replicas, all_but_link, 24}},
      {"stages_by_slurm", {"slurm", stages, all_but_link, 24}}};
}

class FaultsOverHosts : public testing::TestWithParam<Case> {};

TEST_P(FaultsOverHosts, leave_all_answers_as_undisturbed_and_nothing_behind) {
  const BrokenBatch& batch = GetParam().batch;
  if (const auto missing = missing_for(batch); !missing.empty()) GTEST_SKIP() << missing;
  const LauncherJob job;
  expect_survived(job, batch);
}

INSTANTIATE_TEST_SUITE_P(Of, FaultsOverHosts, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace troupe::launcher_test
