// Whole engines over real processes: the same requests on one worker with one thread, and on two
// workers with one thread each in every arrangement, as a ratio of the first. Each figure is the
// best of several engines; the time is from the first request's submission to the last answer,
// excluding start-up. `bench_topologies [model folder]`, in the root of the repository by default.
// With two hosts after the folder (as ssh knows them) only the prompts, on one worker of the first
// host and on a stage of each, in turn: medians
// (`tests/support/hosts/with-hosts 2 build/release/bin/bench_topologies MODEL h1 h2`).

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "actors/engine/engine.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/log.hpp"
#include "runtime/link/local_address.hpp"
#include "runtime/node/ssh_node_starter.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int repeats = 3;

struct Workload {
  const char* name;
  int requests;
  int prompt_tokens;
  int max_tokens;
};

constexpr Workload workloads[] = {
    {"prefill-heavy", 96, 512, 4},
    {"decode-heavy", 64, 32, 160},
};

struct Topology {
  const char* name;
  int data = 1;
  int pipeline = 1;
  int tensor = 1;
  int expert = 1;
  bool sequence_parallel = false;
  const char* target = "";
};

constexpr Topology topologies[] = {
    {.name = "pp2", .pipeline = 2, .target = "   (target, prefill-heavy: 1.6)"},
    {.name = "dp2", .data = 2},
    {.name = "tp2", .tensor = 2},
    {.name = "tp2+sp", .tensor = 2, .sequence_parallel = true},
    {.name = "tp2+ep2", .tensor = 2, .expert = 2},
    {.name = "tp2+ep2+sp", .tensor = 2, .expert = 2, .sequence_parallel = true},
    {.name = "dp2+ep2", .data = 2, .expert = 2},
};

std::vector<Request> requests_of(const Workload& workload) {
  std::vector<Request> requests;
  std::uint32_t random = 1;
  for (int i = 0; i < workload.requests; ++i) {
    Request request;
    request.id = static_cast<std::uint64_t>(i);
    request.kind = PromptKind::token_ids;
    for (int t = 0; t < workload.prompt_tokens; ++t) {
      random = random * 1664525U + 1013904223U;
      request.prompt_ids.push_back(static_cast<std::int32_t>(random >> 20));
    }
    request.temperature = 0.0F;
    request.max_tokens = workload.max_tokens;
    request.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  return requests;
}

/// Counts answers, and keeps the first error.
class Answers {
 public:
  EngineEvents events() {
    return {.on_report = [this](const EngineReport& report) { take(report); },
            .on_down =
                [this](const ActorDown& down) {
                  std::lock_guard lock(mutex_);
                  if (down.cause == DownCause::stopped) return;
                  failure_ = down.message;
                  changed_.notify_all();
                }};
  }

  Result<void> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, 300s, [&] { return count_ >= count || !failure_.empty(); })) {
      return fail(ErrorCode::timed_out, "{} of {} answers after 300 s", count_, count);
    }
    if (!failure_.empty()) return fail(ErrorCode::internal, "{}", failure_);
    return {};
  }

 private:
  void take(const EngineReport& report) {
    std::lock_guard lock(mutex_);
    for (const Completion& completion : report.completions) {
      if (completion.failed()) failure_ = completion.error;
      ++count_;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t count_ = 0;
  std::string failure_;
};

/// `workers` devices of this machine, or one of each of the first hosts.
Result<ClusterOptions> options_of(const std::vector<std::string>& hosts, int workers) {
  ClusterOptions options;
  options.log_level = log::Level::warning;
  if (hosts.empty()) {
    NodeSpec node{.name = "node0", .cpus = workers, .devices = {}};
    for (int device = 0; device < workers; ++device) node.devices.push_back(device);
    options.nodes = {node};
    return options;
  }
  SshNodeStarter::Options ssh;
  for (int i = 0; i < workers; ++i) {
    const std::string& host = hosts[static_cast<std::size_t>(i)];
    options.nodes.push_back({host, 1, {0}});
    ssh.host_of_node[host] = {host};
  }
  options.starter = std::make_shared<SshNodeStarter>(std::move(ssh));
  TROUPE_TRY(options.address, local_address_towards(hosts.front()));
  return options;
}

/// Seconds from submission to the last answer.
Result<double> run_once(const std::string& model, const Topology& topology,
                        const Workload& workload, const std::vector<std::string>& hosts = {}) {
  EngineSpec spec;
  spec.model_path = model;
  spec.data_parallel_size = topology.data;
  spec.pipeline_parallel_size = topology.pipeline;
  spec.tensor_parallel_size = topology.tensor;
  spec.expert_parallel_size = topology.expert;
  spec.sequence_parallel = topology.sequence_parallel;
  spec.max_model_len = 1024;
  spec.max_num_batched_tokens = 1024;
  const int world = topology.data * topology.pipeline * topology.tensor;
  TROUPE_TRY(auto options, options_of(hosts, world));
  TROUPE_TRY(const auto cluster, Cluster::start(std::move(options)));
  Answers answers;
  TROUPE_TRY(const auto engine, Engine::create(*cluster, spec, answers.events()));
  const auto started = engine->started(60s);
  if (!started) return fail(ErrorCode::timed_out, "the engine did not start in 60 s");
  if (!started->ok()) return started->error();
  auto requests = requests_of(workload);
  const auto count = requests.size();
  const auto began = Clock::now();
  TROUPE_CHECK(engine->submit(std::move(requests)));
  TROUPE_CHECK(answers.wait_for(count));
  return std::chrono::duration<double>(Clock::now() - began).count();
}

Result<double> best_of(const std::string& model, const Topology& topology,
                       const Workload& workload) {
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    TROUPE_TRY(const double seconds, run_once(model, topology, workload));
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

Result<void> run_over_hosts(const std::string& model, const std::vector<std::string>& hosts) {
  const Workload& workload = workloads[0];
  std::vector<double> one, two;
  for (int i = 0; i < 2 * repeats - 1; ++i) {
    TROUPE_TRY(one.emplace_back(), run_once(model, {.name = "one"}, workload, hosts));
    TROUPE_TRY(two.emplace_back(),
               run_once(model, {.name = "pp2", .pipeline = 2}, workload, hosts));
    std::printf("one host %6.2f s   a stage on each of two %6.2f s   %.2f x\n", one.back(),
                two.back(), one.back() / two.back());
    std::fflush(stdout);
  }
  std::ranges::sort(one);
  std::ranges::sort(two);
  std::printf("%d requests of %d + %d tokens: medians %.2f and %.2f s: %.2f x   (target 1.6)\n",
              workload.requests, workload.prompt_tokens, workload.max_tokens, one[one.size() / 2],
              two[two.size() / 2], one[one.size() / 2] / two[two.size() / 2]);
  return {};
}

Result<void> run(const std::string& model) {
  for (const Workload& workload : workloads) {
    const double tokens =
        static_cast<double>(workload.requests) * (workload.prompt_tokens + workload.max_tokens);
    TROUPE_TRY(const double one, best_of(model, {.name = "one"}, workload));
    std::printf("%s: %d requests of %d + %d tokens\n", workload.name, workload.requests,
                workload.prompt_tokens, workload.max_tokens);
    std::printf("  %-12s %7.2f s %9.0f tok/s\n", "one worker", one, tokens / one);
    for (const Topology& topology : topologies) {
      TROUPE_TRY(const double seconds, best_of(model, topology, workload));
      std::printf("  %-12s %7.2f s %9.0f tok/s   %.2f x%s\n", topology.name, seconds,
                  tokens / seconds, one / seconds, topology.target);
      std::fflush(stdout);
    }
  }
  return {};
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  troupe::add_engine_actors(types);
  troupe::init(argc, argv, types);
  (void)troupe::log::open("bench", "", troupe::log::Level::warning);
  const std::string model =
      std::filesystem::absolute(argc > 1 ? argv[1] : "configs/demo/fable-moe");
  const auto done =
      argc > 3 ? troupe::run_over_hosts(model, {argv[2], argv[3]}) : troupe::run(model);
  if (done.ok()) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return 1;
}
