#include "actors/driver/place_finder.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/log.hpp"
#include "runtime/base/stop_wait.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds look_interval{50};
/// Most agents are there again sooner; of a longer wait a person is told. Where the domain may be
/// dropped, only of one that goes on.
constexpr milliseconds tell_after{1000};
constexpr milliseconds tell_late_after = PlaceFinder::drop_after + tell_after;

}  // namespace

PlaceFinder::PlaceFinder(Cluster& cluster, PlacementGroupId group, std::int32_t domain,
                         const RestartLimit& limit, std::function<void(const EngineWait&)> on_wait,
                         std::function<bool()> may_drop)
    : cluster_(cluster),
      group_(group),
      domain_(domain),
      wait_seconds_(limit.wait_seconds),
      on_wait_(std::move(on_wait)),
      may_drop_(std::move(may_drop)) {}

std::optional<PlacementGroup> PlaceFinder::group() const {
  const auto groups = cluster_.placement_groups();
  const auto found = std::ranges::find(groups, group_, &PlacementGroup::id);
  return found == groups.end() ? std::nullopt : std::optional(*found);
}

bool PlaceFinder::has_lost_bundles() const {
  const auto now = group();
  return now && std::ranges::any_of(now->bundles, &PlacementGroup::Bundle::is_lost);
}

void PlaceFinder::begin_wait() {
  const auto now = group();
  std::vector<std::size_t> lost;
  for (std::size_t i = 0; now && i < now->bundles.size(); ++i) {
    const bool is_known = wait_ && std::ranges::find(wait_->bundles, i) != wait_->bundles.end();
    if (now->bundles[i].is_lost && !is_known) lost.push_back(i);
  }
  if (wait_ && lost.empty()) return;
  if (!wait_) {
    wait_ = Wait{.refused = cluster_.refused_nodes().size()};
  }
  wait_->limit = deadline_in(std::chrono::seconds(wait_seconds_));
  wait_->drop = deadline_in(drop_after);
  wait_->starts = {};
  wait_->is_told = false;
  for (const std::size_t bundle : lost) {
    wait_->bundles.push_back(bundle);
    const std::string& node = now->bundles[bundle].node;
    if (std::ranges::find(wait_->nodes, node) == wait_->nodes.end()) wait_->nodes.push_back(node);
  }
}

Result<bool> PlaceFinder::look() {
  const auto placed = cluster_.place_again(group_);
  if (placed.ok()) {
    if (wait_) end_wait(*placed);
    return true;
  }
  if (placed.error().code != ErrorCode::resource_exhausted) return placed.error();
  begin_wait();
  if (wait_->limit.is_over()) {
    return fail(ErrorCode::resource_exhausted,
                "no node took its place within restart.wait_seconds ({}): {}", wait_seconds_,
                placed.error().message);
  }
  const auto now = Clock::now();
  if (may_drop_ && wait_->drop.is_over() && may_drop_()) {
    gave_up_early_ = true;
    return fail(ErrorCode::resource_exhausted, "no node took its place within {} s: {}",
                std::chrono::duration<double>(drop_after).count(), placed.error().message);
  }
  if (wait_->starts.start_if_due(cluster_, now)) {
    log::info("waiting for a node: {}", placed.error().message);
  }
  tell_wait(now);
  return false;
}

void PlaceFinder::tell_wait(Clock::time_point now) {
  const std::vector<std::string> refused = cluster_.refused_nodes();
  const bool is_due =
      !wait_->is_told && now - wait_->since >= (may_drop_ ? tell_late_after : tell_after);
  if (!on_wait_ || (!is_due && refused.size() == wait_->refused)) return;
  const auto told = std::min(std::exchange(wait_->refused, refused.size()), refused.size());
  wait_->is_told = true;
  on_wait_({.domain = domain_,
            .lost = wait_->nodes,
            .refused = {refused.begin() + static_cast<std::ptrdiff_t>(told), refused.end()},
            .found = {},
            .seconds = std::chrono::duration<double>(now - wait_->since).count()});
}

void PlaceFinder::end_wait(const PlacementGroup& placed) {
  const Wait ended = *std::exchange(wait_, std::nullopt);
  if (!on_wait_ || !ended.is_told) return;
  EngineWait told{.domain = domain_,
                  .lost = ended.nodes,
                  .refused = {},
                  .found = {},
                  .seconds = std::chrono::duration<double>(Clock::now() - ended.since).count()};
  for (const std::size_t bundle : ended.bundles) {
    const std::string& node = placed.bundles[bundle].node;
    if (std::ranges::find(told.found, node) == told.found.end()) told.found.push_back(node);
  }
  on_wait_(told);
}

Result<void> PlaceFinder::wait() {
  while (true) {
    TROUPE_TRY(const bool is_placed, look());
    if (is_placed) return {};
    std::this_thread::sleep_for(look_interval);
  }
}

void PlaceFinder::give_up() {
  const Result<void> removed = cluster_.remove_placement_group(group_);
  if (!removed.ok()) log::debug("{}", removed.error().message);
}

void PlaceKeeper::run(const std::stop_token& stop) const {
  while (!stops_within(stop, look_interval)) {
    if (!finder_.has_lost_bundles()) continue;
    const Result<bool> looked = finder_.look();
    if (looked.ok()) continue;
    if (looked.error().code == ErrorCode::cancelled) return;  // the cluster ends, and its actors
    log::warning("{}", looked.error().message);
    return finder_.give_up();
  }
}

}  // namespace troupe
