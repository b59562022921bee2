#pragma once

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "runtime/actor/cluster.hpp"

namespace troupe::test {

using namespace std::chrono_literals;

/// A bound for waits that end at once when all is well; generous, because machines are busy.
inline constexpr auto limit = 20s;

class Counter {
 public:
  explicit Counter(int start) : value_(start) {}
  int add(int amount) { return value_ += amount; }
  Result<int> divide(int divisor) {
    if (divisor == 0) return fail(ErrorCode::invalid_argument, "division by zero");
    return value_ / divisor;
  }
  void reset() { value_ = 0; }
  int throw_something() { throw std::runtime_error("on purpose"); }
  int throw_a_number() { throw 7; }
  int pid() { return ::getpid(); }

  static constexpr std::string_view actor_type = "Counter";
  using Arguments = troupe::Arguments<int>;
  using Methods =
      troupe::Methods<&Counter::add, &Counter::divide, &Counter::reset, &Counter::throw_something,
                      &Counter::pid, &Counter::throw_a_number>;

 private:
  int value_;
};

/// Records the numbers it gets, optionally slowly.
class Recorder {
 public:
  void record(int number) { numbers_.push_back(number); }
  std::vector<int> numbers() { return numbers_; }
  void block_for_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
  std::string echo(const std::string& text) { return text; }

  static constexpr std::string_view actor_type = "Recorder";
  using Methods = troupe::Methods<&Recorder::record, &Recorder::numbers, &Recorder::block_for_ms,
                                  &Recorder::echo>;

 private:
  std::vector<int> numbers_;
};

/// What actors that can add have in common.
class Adder {
 public:
  virtual ~Adder() = default;
  virtual int add(int amount) = 0;

  static constexpr std::string_view actor_type = "Adder";
  using Methods = troupe::Methods<&Adder::add>;
};

/// Adds everything twice.
class Doubler final : public Adder {
 public:
  int add(int amount) override { return value_ += 2 * amount; }
  int value() { return value_; }

  static constexpr std::string_view actor_type = "Doubler";
  using Methods = troupe::Methods<&Adder::add, &Doubler::value>;

 private:
  int value_ = 0;
};

/// Uses everything an ActorContext offers.
class Insider {
 public:
  explicit Insider(ActorContext& context) : context_(context) {}

  Result<int> add_through(const ActorHandle<Counter>& counter, int amount) {
    return counter.call<&Counter::add>(amount).get(limit);
  }
  Result<int> add_through_interface(const ActorHandle<Adder>& adder, int amount) {
    return adder.call<&Adder::add>(amount).get(limit);
  }
  Result<int> add_by_name(const std::string& name, int amount) {
    TROUPE_TRY(const auto counter, context_.find<Counter>(name));
    return counter.call<&Counter::add>(amount).get(limit);
  }
  Result<int> add_in(const std::string& name_space, const std::string& name, int amount) {
    TROUPE_TRY(const auto counter, context_.find<Counter>(name, name_space));
    return counter.call<&Counter::add>(amount).get(limit);
  }
  std::string name() { return context_.name(); }
  std::string node() { return context_.node(); }
  std::vector<int> devices() { return context_.device_ids(); }
  std::string visible_devices() {
    const char* set = std::getenv("CUDA_VISIBLE_DEVICES");
    return set == nullptr ? "not set" : set;
  }
  int pid() { return ::getpid(); }
  /// Waits for the end of `counter` as reported by a watch of this process.
  Result<std::string> watch_until_down(const ActorHandle<Counter>& counter) {
    Promise<std::string> told;
    const auto token =
        context_.watch(counter, [told](const ActorDown& down) { told.complete(down.message); });
    return told.future().get(limit);
  }
  Result<std::int64_t> memory_inode(const std::string& name, std::uint64_t bytes);
  Result<void> write_memory(const std::string& name, std::uint64_t bytes, int value);
  Result<int> read_memory(const std::string& name, std::uint64_t bytes);
  Result<void> release_memory(const std::string& prefix) {
    return context_.release_shared_memory(prefix);
  }
  void leave(const std::string& reason) { context_.exit(reason); }
  Result<int> pid_of(const ActorHandle<Insider>& other) {
    return other.call<&Insider::pid>().get(limit);
  }
  /// Waits for the end of `other` as reported by a watch of this process.
  Result<std::string> end_of(const ActorHandle<Insider>& other) {
    Promise<std::string> told;
    const auto token =
        context_.watch(other, [told](const ActorDown& down) { told.complete(down.message); });
    return told.future().get(limit);
  }
  ActorHandle<Insider> self() { return context_.self<Insider>(); }
  /// Returns when the callback of a spawn has ended, which takes `ms`.
  Result<void> spawn_with_slow_callback(int ms);

  static constexpr std::string_view actor_type = "Insider";
  using Methods =
      troupe::Methods<&Insider::add_through, &Insider::add_by_name, &Insider::node,
                      &Insider::devices, &Insider::pid, &Insider::watch_until_down,
                      &Insider::memory_inode, &Insider::write_memory, &Insider::read_memory,
                      &Insider::release_memory, &Insider::leave, &Insider::self,
                      &Insider::add_through_interface, &Insider::pid_of, &Insider::end_of,
                      &Insider::visible_devices, &Insider::spawn_with_slow_callback,
                      &Insider::add_in, &Insider::name>;

 private:
  ActorContext& context_;
};

/// Fails in construction on request.
class Fragile {
 public:
  static Result<std::unique_ptr<Fragile>> create(const std::string& why_not) {
    if (why_not == "throw") throw std::runtime_error("create throws");
    if (why_not == "throw a number") throw 7;
    if (!why_not.empty()) return fail(ErrorCode::corrupt_data, "{}", why_not);
    return std::make_unique<Fragile>();
  }
  int answer() { return 42; }

  static constexpr std::string_view actor_type = "Fragile";
  using Methods = troupe::Methods<&Fragile::answer>;
};

/// Ends in ways that are hard on its process.
class Leaver {
 public:
  /// Unless `note` is empty, the destructor asks the agent for memory and writes the outcome there.
  Leaver(ActorContext& context, std::string note) : context_(context), note_(std::move(note)) {}
  ~Leaver();

  int pid() { return ::getpid(); }
  /// Answers with this many bytes and ends.
  std::string answer_and_leave(std::uint64_t bytes) {
    context_.exit("said all");
    return std::string(bytes, 'x');
  }
  /// Ends, but its destruction takes an hour.
  void leave_and_hang() {
    hangs_ = true;
    context_.exit("wants to go");
  }
  /// Limits this process to little more memory than it has: not enough for a thread's stack.
  void leave_no_room_for_threads();

  static constexpr std::string_view actor_type = "Leaver";
  using Arguments = troupe::Arguments<std::string>;
  using Methods = troupe::Methods<&Leaver::pid, &Leaver::answer_and_leave, &Leaver::leave_and_hang,
                                  &Leaver::leave_no_room_for_threads>;

 private:
  ActorContext& context_;
  const std::string note_;
  bool hangs_ = false;
};

/// Not among the ActorTypes, and without an actor_type: it registers itself.
class Unlisted {
 public:
  int answer() { return 43; }
  using Methods = troupe::Methods<&Unlisted::answer>;
};

/// Starts a cluster; ends the test if that fails.
inline std::unique_ptr<Cluster> start_cluster(ClusterOptions options = {}) {
  auto cluster = Cluster::start(std::move(options));
  if (!cluster.ok()) throw std::runtime_error(cluster.error().message);
  return *std::move(cluster);
}

template <class T>  // NOLINTNEXTLINE(performance-unnecessary-value-param): moved from unless void
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

}  // namespace troupe::test
