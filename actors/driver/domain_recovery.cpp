#include <algorithm>
#include <chrono>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "actors/api/losses.hpp"
#include "actors/driver/domain.hpp"
#include "actors/driver/driver.hpp"
#include "actors/driver/rank_placement.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/log.hpp"
#include "runtime/call/answers.hpp"

namespace troupe {
namespace {

/// Limits for the executor, which may be tokenising, and for the step threads of workers.
constexpr auto pause_timeout = std::chrono::minutes(10);
constexpr auto leave_timeout = std::chrono::milliseconds(1000);
constexpr std::chrono::milliseconds look_turn{50};

}  // namespace

// How a domain goes on after losses: the steps of an attempt.

bool Domain::is_lost(ActorId actor, const std::vector<ActorDown>& losses) const {
  return std::ranges::any_of(
      losses, [&](const ActorDown& down) { return down.id == actor && needs(down); });
}

Result<void> Domain::recover(const std::function<std::vector<ActorDown>()>& losses,
                             const std::function<void()>& on_paused) {
  PhaseTimes times;
  {
    const PlaceKeeper keeper(places_);
    TROUPE_CHECK(pause(losses()));
  }
  times.note("survivors stopped");
  const std::vector<ActorDown> known = losses();  // with those that were reported meanwhile
  std::vector<std::uint64_t> given_up = judge_crash(known);
  on_paused();
  if (!given_up.empty()) {
    call_until_taken<&Driver::refuse>(
        driver_, on_failed_, index_, std::move(given_up), std::string("process_crashed"),
        fmt::format("{} times a process crashed or hung while it computed this request, the last "
                    "time: {}",
                    RequestLedger::max_crashes, cause_of(known).message));
  }
  TROUPE_CHECK(places_.wait());
  times.note("places");
  const PlaceKeeper keeper(places_);
  TROUPE_CHECK(bring_up(info_, times));
  log::info("domain {}: the attempt took {}", index_, times.text());
  return {};
}

Result<void> Domain::pause(const std::vector<ActorDown>& losses) {
  std::optional<Future<std::vector<UnderWay>>> pausing;
  if (!is_lost(executor_.id(), losses)) pausing = executor_.call<&Executor::pause>();
  struct Leaving {
    const ActorHandle<Worker>* worker = nullptr;
    Future<void> call;
  };
  std::vector<Leaving> leaving;
  for (const auto& worker : workers_) {
    // One that does not serve yet may be loading: that is waited for when the group forms.
    if (!serving_.contains(worker.id()) || is_lost(worker.id(), losses)) continue;
    leaving.push_back({&worker, worker.call<&Worker::leave>()});
  }
  if (serving_.contains(workers_.front().id())) judge_.steps_ended(serving_);
  Deadline deadline(leave_timeout);
  for (Leaving& one : leaving) await_leave(*one.worker, one.call, deadline);
  for (const auto& worker : workers_) serving_.erase(worker.id());
  if (!pausing) return {};
  Deadline patience(pause_timeout);
  while (!pausing->wait(look_turn) && !patience.is_over()) {
    // Its next incarnation, for which the call waits then, may wait for a node.
    if (!serves_still(executor_.id())) return {};
  }
  auto paused = pausing->get(std::chrono::seconds(0));
  if (!paused.ok()) return from_actor(executor_.name(), std::move(paused).error());
  judge_.add_under_way(*paused);
  return {};
}

bool Domain::serves_still(ActorId actor) const {
  const auto serves = serving_.find(actor);
  return serves != serving_.end() && is_there(actor, serves->second);
}

bool Domain::is_there(ActorId actor, std::uint32_t incarnation) const {
  return std::ranges::any_of(cluster_.actors(), [&](const Cluster::ActorInfo& one) {
    return one.address.id == actor && one.address.incarnation == incarnation;
  });
}

void Domain::kill(const ActorHandle<Worker>& worker, std::uint32_t incarnation, std::string why) {
  log::error("{}: {}", worker.name(), why);
  notes_->note_kill(worker.id(), incarnation, std::move(why));
  const Result<void> killed = cluster_.kill(worker);
  if (!killed.ok()) log::debug("{}: {}", worker.name(), killed.error().message);
}

void Domain::await_leave(const ActorHandle<Worker>& worker, Future<void>& call,
                         Deadline& deadline) {
  while (!call.wait(std::min<std::chrono::nanoseconds>(look_turn, deadline.left()))) {
    // Its next incarnation, for which the call waits then, has nothing to leave.
    if (!serves_still(worker.id())) return;
    if (!deadline.is_over()) continue;
    const std::uint32_t incarnation = serving_.at(worker.id());
    judge_.note_consequence(worker.id(), incarnation);
    return kill(
        worker, incarnation,
        fmt::format("it was killed after the loss of others, as its step did not end within "
                    "{} ms",
                    leave_timeout.count()));
  }
}

std::vector<std::uint64_t> Domain::judge_crash(const std::vector<ActorDown>& losses) {
  if (!judge_.is_crash(losses)) return {};
  std::vector<UnderWay> under_way = judge_.under_way();
  RequestLedger::CrashVerdict verdict;
  {
    const std::lock_guard lock(requests_mutex_);
    // A dead executor does not say which.
    if (is_lost(executor_.id(), losses)) under_way = ledger_.given();
    verdict = ledger_.note_crash(under_way, epoch());
    suspects_ = verdict.suspects;
  }
  log::info("{} requests were under way in that crash; {} are suspects, {} are given up",
            under_way.size(), verdict.suspects, verdict.given_up.size());
  taken_back_.insert(taken_back_.end(), verdict.taken_back.begin(), verdict.taken_back.end());
  const std::lock_guard lock(requests_mutex_);
  given_up_.insert(given_up_.end(), verdict.prompt_hashes.begin(), verdict.prompt_hashes.end());
  return std::move(verdict.given_up);
}

std::vector<std::string> Domain::take_given_up() {
  const std::lock_guard lock(requests_mutex_);
  return std::exchange(given_up_, {});
}

std::size_t Domain::take_suspects() {
  const std::lock_guard lock(requests_mutex_);
  return std::exchange(suspects_, 0);
}

}  // namespace troupe
