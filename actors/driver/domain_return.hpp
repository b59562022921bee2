#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "actors/api/engine_spec.hpp"
#include "actors/driver/domain.hpp"
#include "actors/driver/lost_node_starts.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/result.hpp"
#include "runtime/node/placement_group.hpp"

namespace troupe {

/// Brings a step domain back that was dropped: looks for places for its ranks, and starts its
/// processes there, on a thread that goes on until it has succeeded or the object ends. What goes
/// wrong meanwhile (no places, a process that is lost, too little memory) is tried again.
///
///     looking --places--> starting --ready--> take()
///        ^                   | an error, or a loss
///        +-------------------+
///
/// Threads: the Driver's; the callbacks come on others.
class DomainReturn {
 public:
  struct Options {
    std::int32_t domain = 0;
    PlacementGroupOptions places;         ///< of its ranks
    EngineInfo info;                      ///< of the engine
    std::vector<std::string> lost_nodes;  ///< in place of which it looks for others, for messages
    std::chrono::seconds alone_limit{0};  ///< how long the engine may be without any domain
    /// Makes the domain with its ranks in the group, and begins to spawn its actors.
    std::function<std::unique_ptr<Domain>(PlacementGroup group)> make;
    /// False while the engine has no domain at all.
    std::function<bool()> has_others;
    /// A loss of an actor of the domain that take() has returned.
    DownCallback on_down;
    /// The domain is there, for take().
    std::function<void()> on_ready;
    /// The engine has had no domain for alone_limit; the search has ended.
    std::function<void(const std::string& why)> on_hopeless;
    std::function<void(const EngineWait&)> on_wait;  ///< EngineEvents::on_wait; may be null
  };

  /// `cluster` outlives the object.
  DomainReturn(Cluster& cluster, Options options);
  ~DomainReturn();  ///< ends the processes that have been started
  DomainReturn(const DomainReturn&) = delete;
  DomainReturn& operator=(const DomainReturn&) = delete;

  /// Looks, on a thread. Call at first, and when take() has returned nothing.
  void begin();
  /// Returns the domain, which serves; null if it has lost an actor since on_ready.
  std::unique_ptr<Domain> take();

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched;

  void run(const std::stop_token& stop);
  /// Empty if `stop` is requested or there is no hope.
  std::optional<PlacementGroup> find_places(const std::stop_token& stop);
  bool is_hopeless(const Error& why);
  Result<void> bring_up(PlacementGroup group);
  void tell(std::string problem);
  void tell_refusals();
  void end_group();

  Cluster& cluster_;
  const Options options_;
  LostNodeStarts starts_;
  std::optional<Deadline> alone_;  ///< without any domain
  std::size_t refused_ = 0;        ///< the refusals that are told
  std::string told_;               ///< the last problem
  std::unique_ptr<Domain> domain_;
  std::shared_ptr<Watched> watched_;  ///< of domain_

  std::mutex mutex_;                       ///< of the next two
  std::optional<PlacementGroupId> group_;  ///< of domain_
  bool is_ending_ = false;
  std::jthread thread_;
};

}  // namespace troupe
