#include <algorithm>
#include <chrono>
#include <utility>

#include "actors/driver/domain.hpp"
#include "actors/driver/driver.hpp"
#include "actors/driver/missing_ranks.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/stop_wait.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

/// For a worker to say where it is; its step does not delay that.
constexpr milliseconds answer_limit{2000};
constexpr milliseconds answer_turn{50};
/// Between two looks: a rank that has done nothing meanwhile hangs.
constexpr milliseconds between_looks{3000};

}  // namespace

// Which rank a step hangs in.

void Domain::look_into(const OverdueStep& overdue) {
  if (is_looking_.exchange(true)) return;
  if (look_.joinable()) look_.join();
  look_ = std::jthread([this, overdue](const std::stop_token& stop) {
    look_twice(stop, overdue);
    is_looking_ = false;
  });
}

std::vector<RankState> Domain::ask_states(const std::stop_token& stop) const {
  std::vector<Future<RankState>> asked;
  for (const auto& worker : workers_) asked.push_back(worker.call<&Worker::state>());
  std::vector<RankState> states;
  Deadline deadline(answer_limit);
  for (auto& answer : asked) {
    while (!answer.wait(answer_turn) && !deadline.is_over()) {
      if (stop.stop_requested()) return states;
    }
    auto state = answer.get(std::chrono::seconds(0));
    if (state.ok()) states.push_back(*std::move(state));
  }
  return states;
}

void Domain::look_twice(const std::stop_token& stop, const OverdueStep& overdue) {
  const std::vector<RankState> first = ask_states(stop);
  log::warning("domain {}: step {} is not answered after {:.1f} s; the ranks are at:", index_,
               overdue.step, overdue.seconds);
  for (const std::string& line : describe(first)) log::warning("  {}", line);
  if (stops_within(stop, between_looks)) return;
  const std::vector<RankState> second = ask_states(stop);
  std::vector<RankState> hung;
  for (const int rank : find_missing_ranks(second, overdue.step)) {
    const auto before = std::ranges::find(first, rank, &RankState::rank);
    const auto now = std::ranges::find(second, rank, &RankState::rank);
    if (before != first.end() && is_unchanged(*before, *now)) hung.push_back(*now);
  }
  if (hung.empty()) {
    log::warning("no rank hangs: step {} is slow, or its answer is lost", overdue.step);
    return;
  }
  for (const RankState& rank : hung) {
    call_until_taken<&Driver::hung>(
        driver_, on_failed_, index_, overdue.epoch, rank.rank, rank.incarnation,
        describe_missing(second, rank.rank, overdue.step), describe(second));
  }
}

bool Domain::kill_hung(std::int32_t rank, std::uint32_t incarnation, const std::string& why) {
  const auto& worker = workers_.at(static_cast<std::size_t>(rank - first_rank()));
  if (!is_there(worker.id(), incarnation)) return false;
  judge_.note_hang(worker.id(), incarnation);
  kill(worker, incarnation, "it was killed as it hung: " + why);
  return true;
}

}  // namespace troupe
