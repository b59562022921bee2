#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "actors/api/engine_spec.hpp"
#include "actors/driver/lost_node_starts.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/result.hpp"
#include "runtime/node/placement_group.hpp"

namespace troupe {

/// Finds places for the bundles of a step domain's placement group that were lost with their nodes.
/// A wait goes on from look to look, whoever looks, until there are places. If more bundles are
/// lost meanwhile, all have the whole time from then on. One thread at a time.
class PlaceFinder {
 public:
  /// How long a domain is waited for that may be dropped: an agent that was killed is there again.
  static constexpr std::chrono::milliseconds drop_after{2000};

  /// `group`: of step domain number `domain`, one that moves. `on_wait` is told of waits of a
  /// second and more, or of those that are longer than drop_after (EngineEvents::on_wait); may be
  /// null. `may_drop`: whether the domain may be dropped at the moment, so that drop_after is
  /// enough; null: never. Called on the threads of those that look. `cluster` outlives the object.
  PlaceFinder(Cluster& cluster, PlacementGroupId group, std::int32_t domain,
              const RestartLimit& limit, std::function<void(const EngineWait&)> on_wait,
              std::function<bool()> may_drop = {});

  /// Looks for places once, and now and then has the agents of lost nodes started. True once there
  /// are places. Errors: resource_exhausted if there have been none for RestartLimit::wait_seconds,
  /// or for drop_after; cancelled if the cluster ends.
  Result<bool> look();
  /// Looks until there are places. Errors: as look().
  Result<void> wait();
  /// True if bundles are lost at the moment.
  bool has_lost_bundles() const;
  /// True if look() has failed because the domain may be dropped.
  bool gave_up_early() const { return gave_up_early_; }
  /// Ends the actors of the group.
  void give_up();

 private:
  using Clock = std::chrono::steady_clock;
  struct Wait {
    Clock::time_point since = Clock::now();
    Deadline limit{Clock::duration::zero()};
    Deadline drop{Clock::duration::zero()};  ///< once it is over, a domain that may be dropped is
    LostNodeStarts starts = {};
    std::vector<std::size_t> bundles = {};  ///< that are lost
    std::vector<std::string> nodes = {};    ///< of these
    bool is_told = false;
    std::size_t refused = 0;  ///< the refusals that are told
  };
  /// Begins a wait, or begins its time anew if there are bundles that were not lost before.
  void begin_wait();
  void tell_wait(Clock::time_point now);
  void end_wait(const PlacementGroup& placed);
  std::optional<PlacementGroup> group() const;

  Cluster& cluster_;
  const PlacementGroupId group_;
  const std::int32_t domain_;
  const std::int64_t wait_seconds_;
  const std::function<void(const EngineWait&)> on_wait_;
  const std::function<bool()> may_drop_;
  std::optional<Wait> wait_;
  bool gave_up_early_ = false;
};

/// While it lives, a thread of it finds places for bundles that are lost: those that wait for the
/// next incarnation of an actor would wait for ever otherwise. If there are none in time, ends the
/// actors of the group, and so these waits.
class PlaceKeeper {
 public:
  /// `finder` outlives the object, and is used by it alone meanwhile.
  explicit PlaceKeeper(PlaceFinder& finder) : finder_(finder) {}

 private:
  void run(const std::stop_token& stop) const;

  PlaceFinder& finder_;
  std::jthread thread_{[this](const std::stop_token& stop) { run(stop); }};
};

}  // namespace troupe
