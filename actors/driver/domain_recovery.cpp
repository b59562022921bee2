#include <algorithm>
#include <chrono>
#include <iterator>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "actors/api/losses.hpp"
#include "actors/driver/domain.hpp"
#include "actors/driver/driver.hpp"
#include "actors/driver/rank_placement.hpp"
#include "runtime/base/log.hpp"
#include "runtime/call/answers.hpp"

namespace troupe {
namespace {

/// Limits for the executor, which may be tokenising, and for the step threads of workers.
constexpr auto pause_timeout = std::chrono::minutes(10);
constexpr auto leave_timeout = std::chrono::milliseconds(1000);

}  // namespace

// How a domain goes on after losses: the steps of an attempt.

bool Domain::is_lost(ActorId actor, const std::vector<ActorDown>& losses) const {
  return std::ranges::any_of(
      losses, [&](const ActorDown& down) { return down.id == actor && needs(down); });
}

Result<void> Domain::recover(const std::vector<ActorDown>& losses,
                             const std::function<void()>& on_paused) {
  TROUPE_TRY(auto under_way, pause(losses));
  std::vector<std::uint64_t> given_up = judge_crash(losses, std::move(under_way));
  on_paused();
  if (!given_up.empty()) {
    driver_.call<&Driver::refuse>(
        index_, std::move(given_up), std::string("process_crashed"),
        fmt::format("{} times a process crashed while it computed this request, the last time: {}",
                    RequestLedger::max_crashes, cause_of(losses).message));
  }
  TROUPE_CHECK(find_places());
  begin_form();
  TROUPE_CHECK(begin_load());
  const auto loaded = finish_load();
  if (!loaded.ok()) return loaded.error();
  begin_serve(info_);
  return finish_serve(info_);
}

Result<std::vector<std::uint64_t>> Domain::pause(const std::vector<ActorDown>& losses) {
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
  for (const auto& worker : workers_) serving_.erase(worker.id());
  Deadline deadline(leave_timeout);
  for (Leaving& one : leaving) await_leave(*one.worker, one.incarnation, one.call, deadline);
  if (!pausing) return std::vector<std::uint64_t>();
  auto paused = pausing->get(pause_timeout);
  if (!paused.ok()) return from_actor(executor_.name(), std::move(paused).error());
  return paused;
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

std::vector<std::uint64_t> Domain::judge_crash(const std::vector<ActorDown>& losses,
                                               std::vector<std::uint64_t> under_way) {
  std::vector<ActorDown> latest;
  std::ranges::copy_if(losses, std::back_inserter(latest), [this](const ActorDown& down) {
    return judged_.emplace(down.id, down.incarnation).second;
  });
  if (latest.empty() || !began_inside(latest)) return {};
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
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds turn{50};
  constexpr std::chrono::seconds between_starts{2};
  const auto until = Clock::now() + std::chrono::seconds(spec_.restart.wait_seconds);
  for (auto next_start = Clock::now();;) {
    auto placed = cluster_.place_again(placed_.id);
    if (placed.ok()) {
      placed_ = *std::move(placed);
      nodes_ = nodes_of_ranks(mesh_, placed_);
      return {};
    }
    const auto now = Clock::now();
    if (placed.error().code != ErrorCode::resource_exhausted) return std::move(placed).error();
    if (now >= until) {
      return fail(ErrorCode::resource_exhausted,
                  "no node took its place within restart.wait_seconds ({}): {}",
                  spec_.restart.wait_seconds, placed.error().message);
    }
    if (now >= next_start) {
      log::info("waiting for a node: {}", placed.error().message);
      cluster_.start_lost_nodes();
      next_start = now + between_starts;
    }
    std::this_thread::sleep_for(turn);
  }
}

}  // namespace troupe
