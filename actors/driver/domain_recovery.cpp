#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "actors/api/losses.hpp"
#include "actors/driver/call_until_taken.hpp"
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

constexpr std::chrono::milliseconds look_interval{50};
/// Between two starts of lost nodes' agents: at first, and at most.
constexpr std::chrono::milliseconds first_start_pause{250};
constexpr std::chrono::milliseconds longest_start_pause{2000};

/// Finds places for bundles that were lost with their nodes.
class PlaceFinder {
 public:
  PlaceFinder(Cluster& cluster, PlacementGroupId group, const RestartLimit& limit)
      : cluster_(cluster),
        group_(group),
        wait_seconds_(limit.wait_seconds),
        deadline_(deadline_in(std::chrono::seconds(limit.wait_seconds))) {}

  /// Looks for places once, and now and then has the agents of lost nodes started. True once there
  /// are places; resource_exhausted if there have been none for RestartLimit::wait_seconds.
  Result<bool> look() {
    const auto placed = cluster_.place_again(group_);
    if (placed.ok()) return true;
    if (placed.error().code != ErrorCode::resource_exhausted) return placed.error();
    if (deadline_.is_over()) {
      return fail(ErrorCode::resource_exhausted,
                  "no node took its place within restart.wait_seconds ({}): {}", wait_seconds_,
                  placed.error().message);
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_start_) {
      log::info("waiting for a node: {}", placed.error().message);
      cluster_.start_lost_nodes();
      next_start_ = now + start_pause_;
      start_pause_ = std::min(2 * start_pause_, longest_start_pause);
    }
    return false;
  }

 private:
  Cluster& cluster_;
  const PlacementGroupId group_;
  const std::int64_t wait_seconds_;
  Deadline deadline_;
  std::chrono::steady_clock::time_point next_start_{};
  std::chrono::milliseconds start_pause_ = first_start_pause;
};

/// While it lives, a thread of it finds places for bundles that are lost: those that wait for the
/// next incarnation of an actor would wait for ever otherwise. If there are none in time, removes
/// the group, which ends its actors and so these waits.
class PlaceKeeper {
 public:
  PlaceKeeper(Cluster& cluster, PlacementGroupId group, const RestartLimit& limit)
      : cluster_(cluster), group_(group), limit_(limit) {}

 private:
  void run(const std::stop_token& stop) const {
    std::optional<PlaceFinder> finder;
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    const auto has_stopped = [&] { return stop.stop_requested(); };
    while (!stopped.wait_for(lock, stop, look_interval, has_stopped)) {
      if (!has_lost_bundles()) {
        finder.reset();
        continue;
      }
      if (!finder) finder.emplace(cluster_, group_, limit_);
      const Result<bool> looked = finder->look();
      if (looked.ok()) continue;
      if (looked.error().code == ErrorCode::cancelled) return;  // the cluster ends, and its actors
      log::warning("{}", looked.error().message);
      const Result<void> removed = cluster_.remove_placement_group(group_);
      if (!removed.ok()) log::debug("{}", removed.error().message);
      return;
    }
  }
  bool has_lost_bundles() const {
    const auto groups = cluster_.placement_groups();
    const auto found = std::ranges::find(groups, group_, &PlacementGroup::id);
    return found != groups.end() &&
           std::ranges::any_of(found->bundles, &PlacementGroup::Bundle::is_lost);
  }

  Cluster& cluster_;
  const PlacementGroupId group_;
  const RestartLimit limit_;
  std::jthread thread_{[this](const std::stop_token& stop) { run(stop); }};
};

}  // namespace

// How a domain goes on after losses: the steps of an attempt.

bool Domain::is_lost(ActorId actor, const std::vector<ActorDown>& losses) const {
  return std::ranges::any_of(
      losses, [&](const ActorDown& down) { return down.id == actor && needs(down); });
}

Result<void> Domain::recover(const std::function<std::vector<ActorDown>()>& losses,
                             const std::function<void()>& on_paused) {
  {
    const PlaceKeeper keeper(cluster_, placed().id, spec_.restart);
    TROUPE_CHECK(pause(losses()));
  }
  const std::vector<ActorDown> known = losses();  // with those that were reported meanwhile
  std::vector<std::uint64_t> given_up = judge_crash(known);
  on_paused();
  if (!given_up.empty()) {
    call_until_taken<&Driver::refuse>(
        driver_, on_failed_, index_, std::move(given_up), std::string("process_crashed"),
        fmt::format("{} times a process crashed while it computed this request, the last time: {}",
                    RequestLedger::max_crashes, cause_of(known).message));
  }
  TROUPE_CHECK(find_places());
  const PlaceKeeper keeper(cluster_, placed().id, spec_.restart);
  begin_form();
  TROUPE_CHECK(begin_load());
  const auto loaded = finish_load();
  if (!loaded.ok()) return loaded.error();
  begin_serve(info_);
  return finish_serve(info_);
}

Result<void> Domain::pause(const std::vector<ActorDown>& losses) {
  std::optional<Future<std::vector<std::uint64_t>>> pausing;
  if (!is_lost(executor_.id(), losses)) pausing = executor_.call<&Executor::pause>();
  struct Leaving {
    const ActorHandle<Worker>* worker = nullptr;
    std::uint32_t incarnation = 0;
    Future<void> call;
  };
  std::vector<Leaving> leaving;
  for (const auto& worker : workers_) {
    const auto serves = serving_.find(worker.id());
    // One that does not serve yet may be loading: that is waited for when the group forms.
    if (serves == serving_.end() || is_lost(worker.id(), losses)) continue;
    leaving.push_back({&worker, serves->second, worker.call<&Worker::leave>()});
  }
  if (serving_.contains(workers_.front().id())) judge_.steps_ended(serving_);
  for (const auto& worker : workers_) serving_.erase(worker.id());
  Deadline deadline(leave_timeout);
  for (Leaving& one : leaving) await_leave(*one.worker, one.incarnation, one.call, deadline);
  if (!pausing) return {};
  auto paused = pausing->get(pause_timeout);
  if (!paused.ok()) return from_actor(executor_.name(), std::move(paused).error());
  judge_.add_under_way(*paused);
  return {};
}

void Domain::await_leave(const ActorHandle<Worker>& worker, std::uint32_t incarnation,
                         Future<void>& call, Deadline& deadline) {
  const auto serves_still = [&] {
    return std::ranges::any_of(cluster_.actors(), [&](const Cluster::ActorInfo& actor) {
      return actor.address.id == worker.id() && actor.address.incarnation == incarnation;
    });
  };
  constexpr std::chrono::milliseconds turn{50};
  while (!call.wait(std::min<std::chrono::nanoseconds>(turn, deadline.left()))) {
    // Its next incarnation, for which the call waits then, has nothing to leave.
    if (!serves_still()) return;
    if (!deadline.is_over()) continue;
    log::warning("{} is killed: its step did not end within {} ms", worker.name(),
                 leave_timeout.count());
    const Result<void> killed = cluster_.kill(worker);
    if (!killed.ok()) log::debug("{}: {}", worker.name(), killed.error().message);
    return;
  }
}

std::vector<std::uint64_t> Domain::judge_crash(const std::vector<ActorDown>& losses) {
  if (!judge_.is_crash(losses)) return {};
  std::vector<std::uint64_t> under_way = judge_.under_way();
  RequestLedger::CrashVerdict verdict;
  {
    const std::lock_guard lock(requests_mutex_);
    // A dead executor does not say which.
    if (is_lost(executor_.id(), losses)) under_way = ledger_.given();
    verdict = ledger_.note_crash(under_way);
  }
  log::info("{} requests were under way in that crash; {} are suspects, {} are given up",
            under_way.size(), verdict.taken_back.size(), verdict.given_up.size());
  taken_back_.insert(taken_back_.end(), verdict.taken_back.begin(), verdict.taken_back.end());
  const std::lock_guard lock(requests_mutex_);
  given_up_.insert(given_up_.end(), verdict.prompt_hashes.begin(), verdict.prompt_hashes.end());
  return std::move(verdict.given_up);
}

std::vector<std::string> Domain::take_given_up() {
  const std::lock_guard lock(requests_mutex_);
  return std::exchange(given_up_, {});
}

Result<void> Domain::find_places() {
  PlaceFinder finder(cluster_, placed().id, spec_.restart);
  while (true) {
    TROUPE_TRY(const bool is_placed, finder.look());
    if (is_placed) return {};
    std::this_thread::sleep_for(look_interval);
  }
}

}  // namespace troupe
