#include "tests/process/launcher/support/many_nodes.hpp"

#include <fmt/format.h>

#include "runtime/process/child_process.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/empty_model.hpp"

namespace troupe::launcher_test {
namespace {

constexpr const char* dummy = "model.load_format=dummy";

/// Four requests for each node.
std::string requests_for(int nodes) {
  std::string input;
  for (int i = 0; i < 4 * nodes; ++i) {
    nlohmann::json prompt;
    for (int token = 0; token < 3 + i % 5; ++token) prompt.push_back((token * 13 + i) % 64);
    input += completion(fmt::format("r{}", i), prompt,
                        {{"max_tokens", 8}, {"ignore_eos", true}, {"return_token_ids", true}});
  }
  return input;
}

/// The port that a launcher at 127.0.0.1 tells agents to join it at.
std::string port_in(const std::string& told) {
  const std::string before = "--join 127.0.0.1:";
  const auto begin = told.find(before);
  if (begin == told.npos) {
    ADD_FAILURE() << "no port in: " << told;
    return "";
  }
  const std::string rest = told.substr(begin + before.size());
  return rest.substr(0, rest.find(' '));
}

}  // namespace

void expect_all_nodes_to_answer(int nodes) {
  const golden::TemporaryFolder model;
  model.write("config.json", test::empty_model);
  const std::string input = requests_for(nodes);
  const LauncherJob job(model.path());
  job.write_input(input);
  const auto running = job.start(
      as_arguments({dummy, "cluster.launch=join", "cluster.listen=127.0.0.1:0",
                    fmt::format("cluster.nodes={}", nodes), "cluster.token_file=job.token",
                    fmt::format("parallel.data_parallel_size={}", nodes),
                    "engine.kv_cache_blocks=64", "engine.threads_per_worker=1"}));
  const auto log = job.folder() / "out.jsonl.job" / "launcher.log";
  ASSERT_TRUE(running->wait_for_text(log, " --token-file ", run_limit));
  // Agents stand for other machines, so they leave the launcher its core.
  const std::string start = fmt::format(
      "cd {} && for i in $(seq {}); do nice -n 19 {} agent --join 127.0.0.1:{} --token-file "
      "job.token & done; wait",
      job.folder().string(), nodes, launcher_file().string(), port_in(golden::file_bytes(log)));
  auto agents = ChildProcess::start({.arguments = {"sh", "-c", start},
                                     .output_path = (job.folder() / "agents.log").string(),
                                     .program = "sh"});
  ASSERT_TRUE(agents.ok()) << agents.error().message;
  const Ended ended = running->wait(4 * run_limit);
  ASSERT_EQ(ended.code, 0) << ended.describe();
  EXPECT_TRUE(agents->wait(run_limit)) << "an agent does not end with the job";
  expect_same_payloads(answers_to(input, {dummy}, 0, model.path()), job.answers(),
                       fmt::format("{} nodes", nodes));
}

}  // namespace troupe::launcher_test
