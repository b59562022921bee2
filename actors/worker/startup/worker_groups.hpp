#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/telemetry/span_recorder.hpp"
#include "actors/worker/worker_spec.hpp"
#include "models/layers/parallel/parallel_context.hpp"
#include "models/ops/ops.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/network/network_collectives.hpp"
#include "parallel/mesh/mesh.hpp"
#include "runtime/actor/actor_context.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The groups that a worker's rank belongs to, and its Collectives in each: the tensor ranks, the
/// context ranks, the stages, and the ranks that exchange tokens for experts. Each group has one
/// for host memory, and on GPUs a second one for device memory. One thread at a time, except
/// abort().
class WorkerGroups {
 public:
  /// The first of two phases, as addresses must be exchanged between them: attaches to shared
  /// memory, or listens. `stage_bytes` is the most that one stage sends to the next at a time.
  static Result<std::unique_ptr<WorkerGroups>> open(ActorContext& context, const WorkerSpec& spec,
                                                    std::size_t stage_bytes);

  /// The addresses at which this rank listens in each of its groups.
  GroupAddresses addresses() const;
  /// Completes the groups with the addresses of all members. From then on records calls in host
  /// memory in `recorder`, which outlives the object.
  Result<void> connect(const GroupPeers& peers, SpanRecorder& recorder);
  /// If the device has memory of its own: joins the groups' devices, after connect(). `ops`
  /// outlives the use of context(). All ranks call it. Errors: those of join_ranks.
  Result<void> join_devices(Ops& ops);

  /// True if ranks exchange tensors between device memories, which no recorder sees.
  bool on_devices() const {
    return tensor_.on_device || context_.on_device || pipeline_.on_device || experts_.on_device;
  }

  /// The groups as the model needs them; valid as long as this object.
  ParallelContext context() const;
  const Mesh& mesh() const { return mesh_; }

  /// Ends all calls on these groups, here and on the other ranks. Callable from any thread.
  void abort();

 private:
  struct Group {
    std::vector<int> ranks;
    int own = 0;                                  ///< this rank's index in the group
    std::optional<NetworkRendezvous> rendezvous;  ///< between open() and connect()
    std::unique_ptr<Collectives> collectives;     ///< null if the rank is alone
    /// Between the same two, in a group over several nodes: the ranks of this one, if there are
    /// more.
    std::unique_ptr<Collectives> on_node;
    std::unique_ptr<Collectives> on_device;  ///< null if tensors are in host memory
  };

  WorkerGroups(const Mesh& mesh, const WorkerSpec& spec) : mesh_(mesh), spec_(spec) {}
  Result<void> open_group(ActorContext& context, std::string_view name, std::vector<int> ranks,
                          Group& group, std::size_t room_bytes);
  /// Makes the connected links the group's Collectives, with shared memory within a node.
  void complete(Group& group, std::unique_ptr<NetworkCollectives> links) const;
  /// Names a group in this epoch, the same on all of its ranks.
  std::string group_name(std::string_view name, const Group& group) const;
  /// Joins `ranks` of a group, all on this node, in shared memory.
  Result<std::unique_ptr<Collectives>> attach(ActorContext& context, const std::string& name,
                                              const std::vector<int>& ranks,
                                              std::size_t room_bytes) const;

  Mesh mesh_;
  WorkerSpec spec_;
  Group tensor_;
  Group context_;
  Group pipeline_;
  Group experts_;
};

}  // namespace troupe
