#pragma once

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "runtime/actor/cluster.hpp"
#include "runtime/call/wait.hpp"

namespace troupe::test {

using namespace std::chrono_literals;

/// A bound for waits that end at once when all is well; generous, because machines are busy.
inline constexpr auto limit = 30s;

/// Records the numbers it gets, and waits as long as it is told to.
class Patient {
 public:
  explicit Patient(ActorContext& context) : context_(context) {}

  int pid() { return ::getpid(); }
  void record(int number) { numbers_.push_back(number); }
  /// The same, and takes so long.
  int record_slowly(int number, int ms) {
    numbers_.push_back(number);
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    return number;
  }
  std::vector<int> numbers() { return numbers_; }
  /// Returns once the call is cancelled or its deadline has passed; false if that takes too long.
  bool wait_until_cancelled() {
    Deadline patience(limit);
    while (!context_.is_cancelled() && !patience.is_over()) std::this_thread::sleep_for(1ms);
    return context_.is_cancelled();
  }
  /// What is left until the deadline; -1 if there is none.
  std::int64_t remaining_ms() {
    if (context_.deadline() == no_deadline) return -1;
    return std::chrono::duration_cast<std::chrono::milliseconds>(context_.deadline() -
                                                                 std::chrono::steady_clock::now())
        .count();
  }
  /// remaining_ms of another one, asked with a limit; 0: without.
  Result<std::int64_t> remaining_ms_of(const ActorHandle<Patient>& other, int timeout_ms) {
    if (timeout_ms == 0) return other.call<&Patient::remaining_ms>().get(limit);
    return other.with({.timeout = std::chrono::milliseconds(timeout_ms)})
        .call<&Patient::remaining_ms>()
        .get(limit);
  }
  /// Shuts all sockets of the call plane in this process down; returns how many.
  int cut_links();
  void throw_out_of_range() { (void)std::vector<int>().at(7); }
  void end_process() { ::_exit(3); }

  static constexpr std::string_view actor_type = "Patient";
  using Methods =
      troupe::Methods<&Patient::pid, &Patient::record, &Patient::record_slowly, &Patient::numbers,
                      &Patient::wait_until_cancelled, &Patient::remaining_ms,
                      &Patient::remaining_ms_of, &Patient::cut_links, &Patient::throw_out_of_range,
                      &Patient::end_process>;

 private:
  ActorContext& context_;
  std::vector<int> numbers_;
};

/// Shares a process with a Patient.
class Cutter {
 public:
  int cut_links();
  static constexpr std::string_view actor_type = "Cutter";
  using Methods = troupe::Methods<&Cutter::cut_links>;
};

template <class T>  // NOLINTNEXTLINE(performance-unnecessary-value-param): moved from unless void
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

inline std::unique_ptr<Cluster> start_cluster(ClusterOptions options = {}) {
  return must(Cluster::start(std::move(options)));
}

}  // namespace troupe::test
