#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "actors/telemetry/span_recorder.hpp"
#include "actors/worker/timed_collectives.hpp"
#include "actors/worker/worker_spec.hpp"
#include "models/layers/parallel/parallel_context.hpp"
#include "models/ops/ops.hpp"
#include "parallel/collectives/replaceable_collectives.hpp"
#include "parallel/group/communicator_spec.hpp"
#include "parallel/mesh/mesh.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The groups that a worker's rank belongs to, and its Collectives in each: the tensor ranks, the
/// context ranks, the stages, the ranks that exchange tokens for experts, and those of several
/// replicas that share dense layers. Each group has one
/// for host memory, and on GPUs a second one for device memory. One thread at a time, except
/// abort().
class WorkerGroups {
 public:
  /// The communicators of a worker's rank in the group of its domain's workers. `stage_bytes` is
  /// the most that one stage sends to the next at a time.
  static Result<std::vector<CommunicatorSpec>> communicators(const WorkerSpec& spec,
                                                             std::size_t stage_bytes);

  /// `find` returns the communicator of a name, null if there is none. Records calls in host memory
  /// in `recorder`, which outlives the object. Errors: invalid_argument if the group has not
  /// formed.
  using Find = std::function<std::shared_ptr<Collectives>(std::string_view name)>;
  static Result<std::unique_ptr<WorkerGroups>> create(const WorkerSpec& spec, const Find& find,
                                                      SpanRecorder& recorder);
  /// Takes the communicators of the group that has formed anew, for the same context(): what was
  /// made with it stays valid. `nodes`: of each rank, as WorkerSpec::nodes. Not while a call runs,
  /// nor before leave_devices(). Errors: as create.
  Result<void> rejoin(const Find& find, std::vector<std::string> nodes);
  /// If the device has memory of its own: joins the groups' devices, and opens again what the model
  /// had opened before leave_devices(). `ops` outlives the use of context(). All ranks call it; of
  /// those whose model is yet to be loaded, the loading opens the same. Errors: those of
  /// join_ranks; those of ReplaceableCollectives::reopen.
  Result<void> join_devices(Ops& ops);
  /// Leaves the groups' devices after abort(), and frees the memory for it. Nothing that was
  /// captured with context() may be left. Does nothing where no devices have been joined.
  void leave_devices();

  /// True if ranks exchange tensors between device memories, which no recorder sees.
  bool on_devices() const {
    return std::ranges::any_of(all(),
                               [](const Group* group) { return group->on_device != nullptr; });
  }

  /// The groups as the model needs them; valid as long as this object.
  ParallelContext context() const;
  const Mesh& mesh() const { return mesh_; }

  /// The calls of this rank on the groups for host memory. Any thread, once created.
  std::vector<CollectiveState> states() const;

  /// Ends all calls on these groups, here and on the other ranks. Callable from any thread.
  void abort();

 private:
  struct Group {
    const char* name;
    std::vector<int> ranks{};
    std::unique_ptr<TimedCollectives> collectives{};      ///< null if the rank is alone
    std::unique_ptr<ReplaceableCollectives> on_device{};  ///< null if tensors are in host memory
  };
  std::array<Group*, 5> all() { return {&tensor_, &context_, &pipeline_, &experts_, &dense_}; }
  std::array<const Group*, 5> all() const {
    return {&tensor_, &context_, &pipeline_, &experts_, &dense_};
  }

  WorkerGroups(const Mesh& mesh, const WorkerSpec& spec);

  Mesh mesh_;
  WorkerSpec spec_;
  Group tensor_{"tensor"};
  Group context_{"context"};
  Group pipeline_{"pipeline"};
  Group experts_{"experts"};
  Group dense_{"dense"};  ///< without ranks if those of experts_ are the same
};

}  // namespace troupe
