#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/engine/engine.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/job/mailbox.hpp"
#include "launcher/job/node_trial.hpp"
#include "launcher/preflight/preflight.hpp"
#include "launcher/staging/staging.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Callbacks while a session starts, each on the caller's thread; any may be null.
struct SessionEvents {
  std::function<bool(const ClusterWait&)> while_waiting = {};  ///< see ClusterOptions
  KeepGoing keep_going = {};        ///< while nodes are looked at; false gives up (cancelled)
  StagingProgress on_staging = {};  ///< while checkpoints are copied
  std::function<void(const PreflightReport&)> on_preflight = {};  ///< for has_preflight() plans
};

/// The processes of a plan on its nodes, the engine that they are, and what it reports. One
/// thread at a time.
class EngineSession {
 public:
  /// Starts the nodes' agents, looks at the nodes if they are other machines, and begins to start
  /// the engine. Logs of all processes go to the existing folder `log_folder`. Errors: those of
  /// Cluster::start, read_token and check_preflight.
  static Result<std::unique_ptr<EngineSession>> start(const JobPlan& plan,
                                                      const std::string& log_folder,
                                                      log::Level log_level,
                                                      const SessionEvents& events = {});
  ~EngineSession();
  EngineSession(const EngineSession&) = delete;
  EngineSession& operator=(const EngineSession&) = delete;

  /// Waits until the engine takes requests; calls `keep_waiting` every 50 ms, and gives up
  /// (cancelled) when it returns false. Errors: the reason why the model cannot be loaded;
  /// peer_died with the cause if a process is gone.
  Result<EngineInfo> wait_until_ready(const std::function<bool()>& keep_waiting);

  /// The progress of all workers together in loading weights.
  LoadingState loading() { return mailbox_.loading(); }

  Engine& engine() { return *engine_; }
  /// The nodes and processes; lives as long as the session.
  Cluster& cluster() { return *cluster_; }

  /// The domain changes reported since the last call, which stay out of the next take().
  std::vector<EngineDomainChange> take_domain_changes() { return mailbox_.take_domain_changes(); }
  /// Everything reported since the last call; waits at most `timeout` for something.
  Mailbox::Content take(std::chrono::milliseconds timeout) { return mailbox_.take(timeout); }

  /// Returns peer_died with the message of the likeliest cause among `downs` and the deaths
  /// reported within the next 100 ms. Other reports that come meanwhile go to `on_report`.
  Error cause_of(std::vector<ActorDown> downs,
                 const std::function<void(const EngineReport&)>& on_report);

  /// True until the session is shut down; callable from any thread while the session is there.
  KeepGoing keep_going() const {
    return [&ends = is_ending_] { return !ends.load(); };
  }

  /// See Cluster; call before and after this process stops itself.
  void suspend() { cluster_->suspend(); }
  void resume() { cluster_->resume(); }

  /// Ends all processes; they are gone when it returns. The destructor does the same.
  void shutdown();

 private:
  EngineSession() = default;

  Mailbox mailbox_;  // before the engine, whose threads write to it
  std::atomic<bool> is_ending_ = false;
  std::unique_ptr<NodeTrial> trial_;  // before the cluster, a thread of which uses it
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Engine> engine_;
};

/// The most unanswered requests in an engine: enough for every replica to be full and to have as
/// many waiting. Of an engine with `serving` of `domains` step domains: for the replicas of these,
/// so that those which come later find requests.
std::size_t request_window(const EngineSpec& engine, std::int32_t serving = 1,
                           std::int32_t domains = 1);

}  // namespace troupe
