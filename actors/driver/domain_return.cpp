#include "actors/driver/domain_return.hpp"

#include <algorithm>
#include <utility>

#include "actors/worker/phase_times.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/stop_wait.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds look_interval{50};
/// After processes that did not start: at first, and at most.
constexpr milliseconds first_retry{500}, longest_retry{30'000};

}  // namespace

/// Tells losses of the domain's actors to whom they concern: before take() the search, which begins
/// anew, and after it the driver.
struct DomainReturn::Watched {
  std::mutex mutex;
  bool is_taken = false;
  bool has_loss = false;

  /// True if the loss is the driver's.
  bool note_loss() {
    const std::lock_guard lock(mutex);
    has_loss |= !is_taken;
    return is_taken;
  }
};

DomainReturn::DomainReturn(Cluster& cluster, Options options)
    : cluster_(cluster), options_(std::move(options)), refused_(cluster.refused_nodes().size()) {}

DomainReturn::~DomainReturn() {
  thread_.request_stop();
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  if (!thread_.joinable()) return;
  end_group();
  thread_.join();
}

void DomainReturn::begin() {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

std::unique_ptr<Domain> DomainReturn::take() {
  thread_.join();
  {
    const std::lock_guard lock(watched_->mutex);
    watched_->is_taken = !watched_->has_loss;
  }
  if (!watched_->is_taken) {
    end_group();
    domain_.reset();
  }
  return std::move(domain_);
}

void DomainReturn::run(const std::stop_token& stop) {
  milliseconds pause = first_retry;
  while (auto group = find_places(stop)) {
    const std::string where = group->bundles.front().node;
    bool is_ending = false;
    {
      const std::lock_guard lock(mutex_);
      group_ = group->id;
      is_ending = is_ending_;
    }
    if (is_ending) return end_group();
    const Result<void> up = bring_up(*std::move(group));
    if (up.ok()) return options_.on_ready();
    end_group();
    domain_.reset();
    // The names of its former processes are free once these have ended.
    if (up.error().code != ErrorCode::already_exists) {
      tell(fmt::format("{}: its processes could not be started: {}", where, up.error().message));
    }
    if (stops_within(stop, pause)) return;
    pause = std::min(2 * pause, longest_retry);
  }
}

std::optional<PlacementGroup> DomainReturn::find_places(const std::stop_token& stop) {
  while (!stops_within(stop, look_interval)) {
    auto placed = cluster_.create_placement_group(options_.places);
    if (placed.ok()) return *std::move(placed);
    if (placed.error().code == ErrorCode::cancelled) return std::nullopt;  // the cluster ends
    if (is_hopeless(placed.error())) return std::nullopt;
    if (starts_.start_if_due(cluster_, Clock::now())) {
      log::debug("step domain {} waits for a node: {}", options_.domain, placed.error().message);
    }
    tell_refusals();
  }
  return std::nullopt;
}

bool DomainReturn::is_hopeless(const Error& why) {
  if (options_.has_others()) {
    alone_.reset();
    return false;
  }
  if (!alone_) alone_ = deadline_in(options_.alone_limit);
  if (!alone_->is_over()) return false;
  options_.on_hopeless(
      fmt::format("no step domain is left, and no node came within "
                  "restart.wait_seconds ({}): {}",
                  options_.alone_limit.count(), why.message));
  return true;
}

Result<void> DomainReturn::bring_up(PlacementGroup group) {
  const PlacementGroupId id = group.id;
  watched_ = std::make_shared<Watched>();
  domain_ = options_.make(std::move(group));
  TROUPE_CHECK(domain_->finish_spawn([watched = watched_, cluster = &cluster_, id,
                                      on_down = options_.on_down](const ActorDown& down) {
    if (watched->note_loss()) return on_down(down);
    (void)cluster->remove_placement_group(id);  // it ends all waits for the domain's actors
  }));
  PhaseTimes times;
  TROUPE_CHECK(domain_->bring_up(options_.info, times));
  log::info("domain {}: brought up in {}", options_.domain, times.text());
  return {};
}

void DomainReturn::end_group() {
  const std::lock_guard lock(mutex_);
  if (group_) (void)cluster_.remove_placement_group(*group_);
  group_.reset();
}

void DomainReturn::tell(std::string problem) {
  if (problem == told_) return log::debug("{}", problem);
  log::warning("step domain {} is not back: {}", options_.domain, problem);
  told_ = problem;
  if (!options_.on_wait) return;
  options_.on_wait({.domain = options_.domain,
                    .lost = options_.lost_nodes,
                    .refused = {std::move(problem)},
                    .found = {},
                    .is_dropped = true});
}

void DomainReturn::tell_refusals() {
  const std::vector<std::string> refused = cluster_.refused_nodes();
  for (; refused_ < refused.size(); ++refused_) tell(refused[refused_]);
}

}  // namespace troupe
