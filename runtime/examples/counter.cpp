// Counts on every node: spawns a Counter in a process of its own on each, calls them all without
// waiting in between, and adds up what they answer.
//
//   counter                       on this machine: prints "1 counter counted to 1000"
//   counter --hosts h1,h2,h3,h4   over ssh: prints "4 counters counted to 4000"
#include <cstdio>
#include <string_view>
#include <vector>

#include <troupe/troupe.hpp>

using namespace std::chrono_literals;

// An actor is a plain class that lists the methods that others may call. Its calls run one at a
// time.
class Counter {
 public:
  explicit Counter(int start) : value_(start) {}
  int add(int amount) { return value_ += amount; }

  using Arguments = troupe::Arguments<int>;  // of the constructor
  using Methods = troupe::Methods<&Counter::add>;

 private:
  int value_;
};

// Errors are values: TROUPE_TRY takes a result's value, or returns its error to the caller.
troupe::Result<void> count(std::string_view hosts) {
  TROUPE_TRY(auto options, troupe::ssh_cluster(hosts));
  TROUPE_TRY(const auto cluster, troupe::Cluster::start(std::move(options)));

  std::vector<troupe::ActorHandle<Counter>> counters;
  for (const auto& node : cluster->nodes()) {
    TROUPE_TRY(auto counter, cluster->spawn<Counter>({.node = node.spec.name}, 0).get(10s));
    counters.push_back(std::move(counter));
  }
  std::vector<troupe::Future<int>> last;
  for (const auto& counter : counters) {
    for (int i = 1; i < 1000; ++i) counter.call<&Counter::add>(1);  // answers come in order
    last.push_back(counter.call<&Counter::add>(1));
  }
  int sum = 0;
  for (auto& answer : last) {
    TROUPE_TRY(const int value, answer.get(10s));
    sum += value;
  }
  std::printf("%zu counter%s counted to %d\n", last.size(), last.size() == 1 ? "" : "s", sum);
  return {};
}

int main(int argc, char** argv) {
  // First: actors live in this same program, started again, which does not come back from here.
  troupe::init(argc, argv);
  const bool over_hosts = argc == 3 && std::string_view(argv[1]) == "--hosts";
  if (argc > 1 && !over_hosts) {
    std::puts("counter [--hosts h1,h2,...]: counts on every node of a cluster");
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  const auto counted = count(over_hosts ? argv[2] : "");
  if (!counted.ok()) std::fprintf(stderr, "counter: %s\n", counted.error().message.c_str());
  return counted.ok() ? 0 : 1;
}
