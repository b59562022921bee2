#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "actors/api/engine_spec.hpp"
#include "actors/driver/domain.hpp"
#include "actors/driver/recovery_losses.hpp"
#include "runtime/actor/actor_down.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// How a step domain goes on after it has lost workers, its executor, or nodes with them. The
/// Driver decides, one message at a time; a thread of this object makes the calls, which wait.
///
///     serving --lost()--> recovering --ended(ok)--> serving
///                          |  ^  |
///                          |  +--+ ended(loss), or a loss of what has just been made: again
///                          +-----> given up: the engine ends
///
/// One attempt (Domain::recover), each step once the one before it is done on all:
///  1. pause:  Executor::pause ends the step loop; Worker::leave ends the step threads of the
///             survivors, whose collectives the watch of GroupMember has aborted already. One that
///             computes longer than 1 s is killed, and so lost as well. The runtime meanwhile
///             starts the lost ones anew, once they have been reaped.
///  2. place:  bundles that were lost with a node get other places; if there is no room, the agents
///             of lost nodes are started again, for at most RestartLimit::wait_seconds.
///  3. form:   ActorGroup::form, under the next epoch; waits for those that are being started.
///  4. load:   the new ones read their part; survivors have it. A new executor reads the tokenizer.
///  5. start:  KV cache and step plane of the new epoch on all workers. A new executor is given all
///             unanswered requests and their progress (RequestLedger). Then the executor connects
///             and goes on. Its first plans start every sequence anew with the tokens it has.
///
/// Plans and results of an older epoch cannot arrive, as each epoch has its own keys and addresses.
/// Requests that are submitted meanwhile wait in the executor's inbox, as does
/// drain(), or in the ledger. The report of a loss may come late, after the attempt that replaced
/// it: it tells which incarnation has ended, and only one that serves, or a later one, calls for an
/// attempt (Domain::needs). Telemetry is asked of domains that serve. Other domains do not notice.
///
/// Threads: the Driver's.
class Recovery {
 public:
  using Clock = std::chrono::steady_clock;

  /// `domain` outlives the object. The callbacks come on another thread: `on_paused` once an
  /// attempt has stopped the survivors, and `on_ended` at its end, which must lead to a call of
  /// ended().
  Recovery(Domain& domain, std::function<void()> on_paused, std::function<void()> on_ended);
  ~Recovery();  ///< waits for an attempt, which ends when its actors do

  bool is_running() const { return attempt_.joinable(); }
  /// Notes a loss that is to be recovered from. Returns true if an attempt must begin: the domain
  /// serves, and needs this actor. A late report of what has been replaced already is logged alone.
  bool lost(const ActorDown& down, Clock::time_point now);
  /// Begins an attempt.
  void begin();

  /// The next action after an attempt.
  enum class Next { nothing, again, give_up };
  /// Takes the end of an attempt.
  Next ended();
  /// Why the last attempt failed.
  const Error& error() const { return outcome_->error(); }

  /// If there are losses that have not been told: returns what to tell of a recovery that begins or
  /// goes on.
  std::optional<EngineRecovery> take_untold();

  /// The losses since the last recovery was complete, all that are known by now. Any thread.
  std::vector<ActorDown> losses() const { return losses_.all(); }
  /// Notes where all ranks were when one hung, which is killed for it.
  void note_hang(const std::vector<std::string>& ranks) { hang_ = ranks; }
  /// Notes the executor's first step of an epoch.
  void note(const FirstStep& step) { first_step_ = step; }
  /// If the last attempt has succeeded and its first step is noted, in whichever order: completes
  /// the recovery, and returns what to tell. Once.
  std::optional<EngineRecovery> take_complete();

 private:
  Domain& domain_;
  std::function<void()> on_paused_, on_ended_;
  RecoveryLosses losses_;  ///< which the thread of an attempt reads as well
  std::size_t told_ = 0;   ///< number of losses_ that take_untold() has returned
  std::size_t known_ = 0;  ///< number of losses_ when the attempt began
  std::vector<std::string> hang_;
  std::optional<FirstStep> first_step_;
  std::optional<Result<void>> outcome_;  ///< of the attempt that ends; the thread's until joined
  std::thread attempt_;
};

}  // namespace troupe
