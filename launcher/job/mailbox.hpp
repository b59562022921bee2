#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "actors/api/engine_spec.hpp"
#include "actors/api/load_progress.hpp"
#include "actors/api/report.hpp"
#include "actors/telemetry/process_telemetry.hpp"
#include "runtime/actor/actor_down.hpp"

namespace troupe {

/// The queue of reports from the engine's threads to the job's one thread.
class Mailbox {
 public:
  /// One process's answer to one telemetry request.
  struct Telemetry {
    bool all = false;  ///< full telemetry was requested, not totals only
    Result<ProcessTelemetry> told;
  };
  struct Content {
    std::vector<EngineReport> reports;
    std::vector<ActorDown> downs;
    std::vector<EngineRecovery> recoveries;
    std::vector<EngineWait> waits;
    std::vector<EngineDomainChange> domain_changes;
    std::vector<Telemetry> telemetry;

    bool empty() const {
      return reports.empty() && downs.empty() && recoveries.empty() && waits.empty() &&
             domain_changes.empty() && telemetry.empty();
    }
  };

  void put(EngineReport report) { add(content_.reports, std::move(report)); }
  void put(const ActorDown& down) { add(content_.downs, down); }
  void put(const EngineRecovery& recovery) { add(content_.recoveries, recovery); }
  void put(const EngineWait& wait) { add(content_.waits, wait); }
  void put(const EngineDomainChange& change) { add(content_.domain_changes, change); }
  void put(Telemetry telemetry) { add(content_.telemetry, std::move(telemetry)); }

  void put(const LoadingState& state) {
    std::lock_guard lock(mutex_);
    loading_[state.rank] = state;
  }

  /// The progress of all ranks together in loading weights.
  LoadingState loading() {
    std::lock_guard lock(mutex_);
    LoadingState all;
    for (const auto& [rank, state] : loading_) {
      all.bytes += state.bytes;
      all.total_bytes += state.total_bytes;
    }
    return all;
  }

  /// Takes the domain changes that have come, alone.
  std::vector<EngineDomainChange> take_domain_changes() {
    std::lock_guard lock(mutex_);
    return std::exchange(content_.domain_changes, {});
  }

  /// Takes everything that has come; waits at most `timeout` for something.
  Content take(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    filled_.wait_for(lock, timeout, [this] { return !content_.empty(); });
    return std::exchange(content_, Content{});
  }

 private:
  template <class T>
  void add(std::vector<T>& list, T one) {
    {
      std::lock_guard lock(mutex_);
      list.push_back(std::move(one));
    }
    filled_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable filled_;
  Content content_;
  std::map<std::int32_t, LoadingState> loading_;  // by rank
};

}  // namespace troupe
