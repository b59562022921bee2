#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "actors/preflight/node_facts.hpp"
#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_handle.hpp"
#include "runtime/actor/actor_types.hpp"
#include "runtime/actor/methods.hpp"

namespace troupe {

/// The way from one node to another, as the calls of this job take it.
struct LinkFacts {
  std::string problem;          ///< why no call gets there; empty: it does
  double seconds = 0;           ///< of an empty call and its answer, the best of a few
  double bytes_per_second = 0;  ///< of a large argument; 0: not measured
  template <class Archive>
  void fields(Archive& archive) {
    archive(problem, seconds, bytes_per_second);
  }
};

/// Answers the probes of other nodes while its own node's probe waits for theirs.
class ProbeTarget {
 public:
  explicit ProbeTarget(ActorContext& context) : context_(context) {}

  /// Nanoseconds since 1970 by the clock of this node.
  std::int64_t clock_ns();
  /// Returns the number of bytes.
  std::uint64_t take(const Bytes& bytes) { return bytes.size(); }
  /// Ends this actor.
  void leave() { context_.exit("its node has been looked at"); }

  static constexpr std::string_view actor_type = "ProbeTarget";
  using Methods = troupe::Methods<&ProbeTarget::clock_ns, &ProbeTarget::take, &ProbeTarget::leave>;

 private:
  ActorContext& context_;
};

/// A node that another one calls.
struct ProbedPeer {
  ActorHandle<ProbeTarget> target;
  /// It is on the same machine: that a call gets there is all that is to be known of the way.
  bool is_near = false;
  template <class Archive>
  void fields(Archive& archive) {
    archive(target, is_near);
  }
};

/// Looks at its node before anything is loaded there, as a process of the job: with the same user,
/// folder, limits, keys and ports.
class NodeProbe {
 public:
  explicit NodeProbe(ActorContext& context) : context_(context) {}

  NodeFacts facts(const FactsRequest& request) { return gather_facts(request); }
  /// Calls each peer, which gives the facts of the way to it, in the same order. Takes at most
  /// about 10 s, however many are out of reach; what there was no time for is not measured.
  std::vector<LinkFacts> measure(const std::vector<ProbedPeer>& peers);
  /// Ends this actor.
  void leave() { context_.exit("its node has been looked at"); }

  static constexpr std::string_view actor_type = "NodeProbe";
  using Methods = troupe::Methods<&NodeProbe::facts, &NodeProbe::measure, &NodeProbe::leave>;

 private:
  ActorContext& context_;
};

void add_preflight_actors(ActorTypes& types);

}  // namespace troupe
