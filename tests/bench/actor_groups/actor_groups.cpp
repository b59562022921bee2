// What a loss costs a group of four actors: from kill -9 of one member, restarted in place, to the
// first sum of all four under the next epoch, while the others wait in a collective.
// With hosts as arguments (as ssh knows them) the members are spread over these:
// `tests/support/hosts/with-hosts 4 build/release/bin/actor_groups h1 h2 h3 h4`.
// Also the time to form a group whose members are there.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "parallel/group/actor_group.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/link/local_address.hpp"
#include "runtime/node/ssh_node_starter.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto limit = 30s;
constexpr std::size_t members = 4;
constexpr int rounds = 20;

class Member final : public GroupMember {
 public:
  explicit Member(ActorContext& context) : GroupMember(context) {}
  int pid() { return ::getpid(); }
  Result<float> sum(float own) {
    const auto all = collectives();
    if (!all) return fail(ErrorCode::not_found, "the group has not formed");
    TROUPE_CHECK(all->all_reduce_tree({&own, DType::f32, {1}}));
    return own;
  }
  static constexpr std::string_view actor_type = "Member";
  using Methods = GroupMember::Methods::plus<&Member::pid, &Member::sum>;
};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void print(const char* what, std::vector<double> ms, const char* target) {
  std::ranges::sort(ms);
  std::printf("%-34s median %6.1f ms, p95 %6.1f, most %6.1f   %s\n", what, ms[ms.size() / 2],
              ms[ms.size() * 95 / 100], ms.back(), target);
}

/// A node of the host's name on each host, over ssh; without hosts, one on this machine.
Result<ClusterOptions> options_of(const std::vector<std::string>& hosts) {
  ClusterOptions options;
  options.log_level = log::Level::error;
  if (hosts.empty()) {
    options.nodes = {{"here", 4, {}}};
    return options;
  }
  SshNodeStarter::Options ssh;
  for (const std::string& host : hosts) {
    options.nodes.push_back({host, 4, {}});
    ssh.host_of_node[host] = {host};
  }
  options.starter = std::make_shared<SshNodeStarter>(std::move(ssh));
  TROUPE_TRY(options.address, local_address_towards(hosts.front()));
  return options;
}

Result<std::vector<ActorHandle<Member>>> spawn_members(Cluster& cluster) {
  const auto nodes = cluster.nodes();
  std::vector<Future<ActorHandle<Member>>> spawning;
  for (std::size_t i = 0; i < members; ++i) {
    spawning.push_back(
        cluster.spawn<Member>({.node = nodes[i % nodes.size()].spec.name, .max_restarts = -1}));
  }
  std::vector<ActorHandle<Member>> spawned;
  for (auto& one : spawning) {
    TROUPE_TRY(auto member, one.get(limit));
    spawned.push_back(std::move(member));
  }
  return spawned;
}

Result<void> sum_of_all(const std::vector<ActorHandle<Member>>& all) {
  std::vector<Future<float>> sums;
  for (const auto& member : all) sums.push_back(member.call<&Member::sum>(1.0F));
  for (auto& one : sums) {
    TROUPE_TRY(const float sum, one.get(limit));
    if (sum != members) return fail(ErrorCode::internal, "a sum of {}", sum);
  }
  return {};
}

/// Kills the member of that rank, on its own host, while the others wait for it.
Result<double> lose(Cluster& cluster, ActorGroup& group,
                    const std::vector<ActorHandle<Member>>& all, std::size_t rank) {
  std::vector<Future<float>> waiting;
  for (std::size_t i = 0; i < members; ++i) {
    if (i != rank) waiting.push_back(all[i].call<&Member::sum>(1.0F));
  }
  std::this_thread::sleep_for(20ms);
  const auto start = Clock::now();
  TROUPE_CHECK(cluster.kill(all[rank]));
  for (auto& one : waiting) {
    if (one.get(limit).ok()) return fail(ErrorCode::internal, "a sum without a member");
  }
  TROUPE_CHECK(group.form());
  TROUPE_CHECK(sum_of_all(all));
  return ms_since(start);
}

Result<void> run(const std::vector<std::string>& hosts) {
  TROUPE_TRY(auto options, options_of(hosts));
  TROUPE_TRY(const auto cluster, Cluster::start(std::move(options)));
  TROUPE_TRY(const auto all, spawn_members(*cluster));
  ActorGroup group("bench", {all.begin(), all.end()});
  std::vector<double> formed, restored;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    TROUPE_CHECK(group.form());
    TROUPE_CHECK(sum_of_all(all));
    formed.push_back(ms_since(start));
  }
  // Deaths that come fast after each other are followed by pauses (RestartBudget), so each round
  // loses one of four fresh members.
  for (int round = 0; round < rounds; ++round) {
    TROUPE_TRY(const auto fresh, spawn_members(*cluster));
    ActorGroup anew("bench", {fresh.begin(), fresh.end()});
    TROUPE_CHECK(anew.form());
    TROUPE_CHECK(sum_of_all(fresh));
    TROUPE_TRY(const double ms,
               lose(*cluster, anew, fresh, static_cast<std::size_t>(round) % members));
    restored.push_back(ms);
    for (const auto& member : fresh) TROUPE_CHECK(cluster->stop(member));
  }
  std::printf("a group of %zu, %s\n", members,
              hosts.empty() ? "shared memory" : "over hosts by TLS links");
  print("formed, to its first sum", formed, "");
  print("lost a member, to its first sum", restored,
        hosts.empty() ? "(target 300 ms)" : "(target 1,000 ms)");
  return {};
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::Member>();
  troupe::init(argc, argv, types);
  const auto done = troupe::run({argv + 1, argv + argc});
  if (!done.ok()) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done.ok() ? 0 : 1;
}
