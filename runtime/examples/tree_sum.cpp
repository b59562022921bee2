// Adds up vectors with tasks whose results are objects. 16 tasks make a vector each, which stays in
// the worker's process; tasks that are given two references add these up, until one vector is left.
// The driver passes references alone, and submits all tasks before the first result is there. With
// --crash a worker dies in the middle: what it had is computed again, as the vectors' lineage says.
//
//   tree_sum [--crash]           on this machine
//   tree_sum --hosts h1,h2,h3    over ssh
// All print "136000000 in 1000000 places".
#include <csignal>
#include <cstdio>
#include <numeric>
#include <string_view>
#include <vector>

#include <troupe/troupe.hpp>
#include <unistd.h>

using namespace std::chrono_literals;

using Numbers = std::vector<float>;
using troupe::ActorContext;
using troupe::ObjectRef;

constexpr int vectors = 16;
constexpr std::size_t places = 1000000;

Numbers make(int value) { return Numbers(places, static_cast<float>(value)); }

// `get` waits for a task that still runs, and reads what other processes have without a copy.
troupe::Result<Numbers> add(ActorContext& context, const ObjectRef<Numbers>& a,
                            const ObjectRef<Numbers>& b) {
  TROUPE_TRY(const auto first, context.get(a, 60s));
  TROUPE_TRY(const auto second, context.get(b, 60s));
  Numbers sum(first->begin(), first->end());
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += (*second)[i];
  return sum;
}

int pid_of_a_worker() { return ::getpid(); }

troupe::Result<double> sum_up(std::string_view hosts, bool crashes) {
  TROUPE_TRY(auto options, troupe::ssh_cluster(hosts));
  TROUPE_TRY(const auto cluster, troupe::Cluster::start(std::move(options)));
  std::vector<ObjectRef<Numbers>> level;
  for (int i = 1; i <= vectors; ++i) level.push_back(cluster->submit_object<&make>({}, i));
  if (crashes) {
    TROUPE_TRY(const int pid, cluster->submit<&pid_of_a_worker>({}).get(60s));
    ::kill(pid, SIGKILL);
  }
  while (level.size() > 1) {
    std::vector<ObjectRef<Numbers>> next;
    for (std::size_t i = 0; i < level.size(); i += 2) {
      next.push_back(cluster->submit_object<&add>({}, level[i], level[i + 1]));
    }
    level = std::move(next);  // what was added up is freed once nobody needs it
  }
  TROUPE_TRY(const auto sum, cluster->get(level.front(), 120s));
  return std::accumulate(sum->begin(), sum->end(), 0.0);
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  const bool over_hosts = argc == 3 && std::string_view(argv[1]) == "--hosts";
  const bool crashes = argc == 2 && std::string_view(argv[1]) == "--crash";
  if (argc > 1 && !over_hosts && !crashes) {
    std::puts("tree_sum [--crash | --hosts h1,h2,...]: adds up vectors with tasks");
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  const auto sum = sum_up(over_hosts ? argv[2] : "", crashes);
  if (!sum.ok()) {
    std::fprintf(stderr, "tree_sum: %s\n", sum.error().message.c_str());
    return 1;
  }
  std::printf("%.0f in %zu places\n", *sum, places);
  return 0;
}
