#include "tests/process/runtime/observe/watched_program.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>

#include <time.h>

#include "runtime/actor/cluster.hpp"
#include "runtime/node/ssh_node_starter.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::test {
namespace {

using namespace std::chrono_literals;

constexpr auto limit = 20s;

class Back {
 public:
  explicit Back(ActorContext& context)
      : answers_(context.metrics().counter("test_answers_total", "Answers.", {{"by", "back"}})) {
    std::puts("back is made");
    for (int i = 0; i < 3; ++i) std::puts("again and again");
    std::fflush(stdout);
  }

  int answer(int number) {
    answers_.add();
    return number + 1;
  }
  Result<void> refuse() { return fail(ErrorCode::unsupported, "never"); }
  Async<int> doze() {
    TROUPE_CO_CHECK(co_await sleep_for(1ms));
    co_return 1;
  }

  static constexpr std::string_view actor_type = "Back";
  using Methods = troupe::Methods<&Back::answer, &Back::refuse, &Back::doze>;

 private:
  const Counter answers_;
};

class Front {
 public:
  explicit Front(ActorContext& context)
      : seconds_(context.metrics().histogram("test_ask_seconds", "Time of an ask.")) {}

  Result<int> ask(const ActorHandle<Back>& back, int number) {
    const auto begin = std::chrono::steady_clock::now();
    (void)back.call<&Back::refuse>().get(limit);
    (void)back.call<&Back::doze>().get(limit);
    auto answer = back.call<&Back::answer>(number).get(limit);
    seconds_.observe(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return answer;
  }

  static constexpr std::string_view actor_type = "Front";
  using Methods = troupe::Methods<&Front::ask>;

 private:
  const Histogram seconds_;
};

ClusterOptions options_of(const std::string& name, const std::string& logs, int hosts) {
  ClusterOptions options;
  options.name = name;
  options.log_folder = logs;
  options.forward_logs = true;
  if (hosts == 0) return options;
  SshNodeStarter::Options ssh;
  for (int i = 1; i <= hosts; ++i) {
    options.nodes.push_back({fmt::format("node{}", i - 1), 2, {}});
    ssh.host_of_node[options.nodes.back().name] = {host_name(i)};
  }
  options.starter = std::make_shared<SshNodeStarter>(std::move(ssh));
  options.address = own_address;
  options.start_timeout = 20s;
  return options;
}

int refuse(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

}  // namespace

void add_watched_actors(ActorTypes& types) {
  types.add<Back>();
  types.add<Front>();
}

int run_watched_program(const std::vector<std::string>& arguments) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &ends, nullptr);
  const int hosts = std::stoi(arguments.at(2));
  auto cluster = Cluster::start(options_of(arguments.at(0), arguments.at(1), hosts));
  if (!cluster.ok()) return refuse(cluster.error());
  const auto back =
      (*cluster)
          ->spawn<Back>(
              {.name = "back", .node = hosts > 1 ? "node1" : "node0", .max_restarts = 100})
          .get(limit);
  if (!back.ok()) return refuse(back.error());
  const auto front = (*cluster)->spawn<Front>({.name = "front", .node = "node0"}).get(limit);
  if (!front.ok()) return refuse(front.error());
  const Counter rounds = (*cluster)->metrics().counter("test_rounds_total", "Rounds.");
  std::puts("ready");
  std::fflush(stdout);
  const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
  for (int i = 0; ::sigtimedwait(&ends, nullptr, &pause) < 0; ++i) {
    (void)front->call<&Front::ask>(*back, i).get(limit);
    rounds.add();
  }
  return 0;
}

}  // namespace troupe::test
