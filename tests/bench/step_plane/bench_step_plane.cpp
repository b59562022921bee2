// Round trip of the step plane with an empty model: an executor-like actor encodes the plan of a
// decode step of 64 sequences and sends it to the first worker, which fans it out; all workers meet
// in a barrier of the tensor group, so that the answer implies that each has the plan; the first
// one answers 64 tokens. Real processes, real StepPlane, Channel and codec. Beside it, in the same
// run, the cost of the parts: a raw socketpair between two processes, and a Channel with 64 bytes
// and no codec. Every figure is taken several times; the best and the middle run are printed.
//
// With hosts as arguments (as ssh knows them) the executor is on the first and a worker on each of
// the others, without the barrier, and the last one that is sent a plan answers. Beside it, in turn
// with it, the same bytes in the same pattern over plain TCP:
// `tests/support/hosts/with-hosts 5 build/release/bin/bench_step_plane h1 h2 h3 h4 h5`.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "parallel/group/actor_group.hpp"
#include "runtime/link/local_address.hpp"
#include "runtime/node/ssh_node_starter.hpp"
#include "tests/bench/step_plane/step_plane_actors.hpp"

namespace troupe {
namespace {

void print(const char* what, std::vector<Figures> runs, const char* note) {
  std::sort(runs.begin(), runs.end(),
            [](const auto& a, const auto& b) { return a.median < b.median; });
  const Figures& best = runs.front();
  const Figures& middle = runs[runs.size() / 2];
  std::printf(
      "%-40s best run: median %6.1f p99 %7.1f us   middle run: median %6.1f p99 %7.1f us%s\n", what,
      best.median, best.p99, middle.median, middle.p99, note);
  std::fflush(stdout);
}

Result<Figures> ping_socketpair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return fail_errno(errno, "socketpair");
  const UniqueFd mine(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    char buffer[64];
    ::close(mine.get());
    while (::read(theirs.get(), buffer, sizeof buffer) == sizeof buffer &&
           ::write(theirs.get(), buffer, sizeof buffer) == sizeof buffer) {
    }
    ::_exit(0);
  }
  theirs.reset();
  auto result = measure([&](std::uint64_t) -> Result<void> {
    char buffer[64] = {};
    if (::write(mine.get(), buffer, sizeof buffer) == sizeof buffer &&
        ::read(mine.get(), buffer, sizeof buffer) == sizeof buffer) {
      return {};
    }
    return fail_errno(errno, "socketpair");
  });
  ::shutdown(mine.get(), SHUT_RDWR);
  ::waitpid(child, nullptr, 0);
  return result;
}

Result<void> bench_ceilings() {
  std::vector<Figures> raw, channel;
  for (int i = 0; i < repeats; ++i) {  // it forks, so this process has no thread yet
    TROUPE_TRY(const Figures one, ping_socketpair());
    raw.push_back(one);
  }
  print("raw socketpair, 64 bytes", raw, "");
  TROUPE_TRY(const auto cluster, Cluster::start({}));
  TROUPE_TRY(const auto executor,
             cluster->spawn<EmptyExecutor>({.name = executor_name}).get(limit));
  TROUPE_TRY(const auto worker,
             cluster->spawn<EmptyWorker>({.name = worker_name(0)}, WorkerSpec{}, place_of_executor)
                 .get(limit));
  TROUPE_TRY(const auto address, worker.call<&EmptyWorker::echo>().get(limit));
  TROUPE_CHECK(executor.call<&EmptyExecutor::connect>(0, ping_purpose, address).get(limit));
  for (int i = 0; i < repeats; ++i) {
    TROUPE_TRY(const Figures one, executor.call<&EmptyExecutor::ping>().get(limit));
    channel.push_back(one);
  }
  print("channel, 64 bytes, no codec", channel, "");
  return {};
}

Result<void> bench_step(int workers, const char* note) {
  TROUPE_TRY(const auto cluster, Cluster::start({}));
  TROUPE_TRY(const auto executor,
             cluster->spawn<EmptyExecutor>({.name = executor_name}).get(limit));
  std::vector<ActorHandle<EmptyWorker>> all;
  for (int rank = 0; rank < workers; ++rank) {
    const WorkerSpec spec{
        .model_path = "", .rank = rank, .tensor_parallel_size = workers, .max_model_len = 2048};
    TROUPE_TRY(auto worker,
               cluster->spawn<EmptyWorker>({.name = worker_name(rank)}, spec, place_of_executor)
                   .get(limit));
    all.push_back(std::move(worker));
  }
  ActorGroup group("bench", {all.begin(), all.end()});
  TROUPE_CHECK(group.form(limit));
  std::string step_address;
  for (const auto& worker : all) {
    TROUPE_TRY(const auto addresses, worker.call<&EmptyWorker::start>().get(limit));
    if (!addresses.plans.empty()) step_address = addresses.plans;
  }
  const std::string purpose =
      step_channel_scope(epoch, executor_name, 0, StepDirection::plans).purpose;
  TROUPE_CHECK(executor.call<&EmptyExecutor::connect>(0, purpose, step_address).get(limit));
  std::vector<Figures> runs;
  for (int i = 0; i < repeats; ++i) {
    TROUPE_TRY(const Figures one, executor.call<&EmptyExecutor::run>().get(limit));
    runs.push_back(one);
  }
  const std::string what = fmt::format("step plane, {} sequences, {} worker{}", sequences, workers,
                                       workers == 1 ? "" : "s");
  print(what.c_str(), runs, note);
  return {};
}

/// A node of the host's name on each host, over ssh.
Result<ClusterOptions> options_of(const std::vector<std::string>& hosts) {
  ClusterOptions options;
  SshNodeStarter::Options ssh;
  for (const std::string& host : hosts) {
    options.nodes.push_back({host, 1, {}});
    ssh.host_of_node[host] = {host};
  }
  options.starter = std::make_shared<SshNodeStarter>(std::move(ssh));
  TROUPE_TRY(options.address, local_address_towards(hosts.front()));
  return options;
}

/// Plain TCP connections from the executor to all workers, of which the last answers.
Result<void> connect_tcp(const ActorHandle<EmptyExecutor>& executor,
                         const std::vector<ActorHandle<EmptyWorker>>& workers) {
  TROUPE_TRY(const auto sizes, executor.call<&EmptyExecutor::sizes>().get(limit));
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const std::uint64_t result_bytes = i + 1 == workers.size() ? sizes.at(1) : 0;
    TROUPE_TRY(const auto port,
               workers[i].call<&EmptyWorker::serve_tcp>(sizes.at(0), result_bytes).get(limit));
    TROUPE_TRY(const auto address, workers[i].call<&EmptyWorker::address>().get(limit));
    TROUPE_CHECK(executor.call<&EmptyExecutor::connect_tcp>(address, port).get(limit));
  }
  return {};
}

Result<void> bench_hosts(const std::vector<std::string>& hosts) {
  TROUPE_TRY(auto options, options_of(hosts));
  TROUPE_TRY(const auto cluster, Cluster::start(std::move(options)));
  const ExecutorPlace place{.name = executor_name, .node = hosts.front(), .pid = 0};
  TROUPE_TRY(const auto executor,
             cluster->spawn<EmptyExecutor>({.name = executor_name, .node = place.node}).get(limit));
  const std::vector<std::string> nodes(hosts.begin() + 1, hosts.end());
  std::vector<ActorHandle<EmptyWorker>> workers;
  for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
    // A stage each: the last one answers.
    const WorkerSpec spec{.model_path = "",
                          .rank = rank,
                          .pipeline_parallel_size = static_cast<int>(nodes.size()),
                          .nodes = nodes,
                          .max_model_len = 2048};
    TROUPE_TRY(auto worker,
               cluster
                   ->spawn<EmptyWorker>(
                       {.name = worker_name(rank), .node = nodes[static_cast<std::size_t>(rank)]},
                       spec, place)
                   .get(limit));
    TROUPE_TRY(const auto addresses, worker.call<&EmptyWorker::start>().get(limit));
    const auto scope = step_channel_scope(epoch, executor_name, rank, StepDirection::plans);
    TROUPE_CHECK(
        executor.call<&EmptyExecutor::connect>(rank, scope.purpose, addresses.plans).get(limit));
    workers.push_back(std::move(worker));
  }
  std::vector<Figures> plane, tcp;
  for (int i = 0; i < repeats; ++i) {
    TROUPE_TRY(const Figures steps_took, executor.call<&EmptyExecutor::run>().get(limit));
    plane.push_back(steps_took);
    if (i == 0) TROUPE_CHECK(connect_tcp(executor, workers));
    TROUPE_TRY(const Figures tcp_took, executor.call<&EmptyExecutor::run_tcp>().get(limit));
    tcp.push_back(tcp_took);
  }
  TROUPE_CHECK(executor.call<&EmptyExecutor::close_tcp>().get(limit));
  const auto what = fmt::format("step plane, {} sequences, {} hosts", sequences, nodes.size());
  print(what.c_str(), plane, "   (target 500 us)");
  print("the same bytes over plain TCP", tcp, "");
  return {};
}

int run(const std::vector<std::string>& hosts) {
  if (!hosts.empty()) {
    const Result<void> done = bench_hosts(hosts);
    if (!done) std::fprintf(stderr, "%s\n", done.error().message.c_str());
    return done ? 0 : 1;
  }
  Result<void> done = bench_ceilings();
  if (done.ok()) done = bench_step(1, "   (target 150 us)");
  if (done.ok()) done = bench_step(4, "   (target 400 us)");
  if (done.ok()) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return 1;
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::EmptyExecutor>();
  types.add<troupe::EmptyWorker>();
  troupe::init(argc, argv, types);
  return troupe::run({argv + 1, argv + argc});
}
