#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "actors/worker/model_runner.hpp"
#include "models/model/model.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/mesh/mesh.hpp"
#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

class StepPlane;

/// What a worker is made for. The workers of a replica differ in `tensor_rank` only.
struct WorkerSpec {
  std::string model_path;
  std::int32_t replica = 0;      ///< place in the mesh's data dimension
  std::int32_t tensor_rank = 0;  ///< place in its tensor dimension
  std::int32_t data_parallel_size = 1;
  std::int32_t tensor_parallel_size = 1;
  bool sequence_parallel = false;
  std::int32_t threads = 1;  ///< of its model's operations
  bool bf16 = false;         ///< weights and KV cache in bf16; otherwise f32
  std::int64_t max_batch_tokens = 2048;
  std::int64_t max_head_rows = 256;
  std::int64_t max_model_len = 0;
  std::int32_t block_size = 16;
  std::uint32_t epoch = 0;  ///< names the group's regions and keys; new after a failure

  template <class Archive>
  void fields(Archive& archive) {
    archive(model_path, replica, tensor_rank, data_parallel_size, tensor_parallel_size,
            sequence_parallel, threads, bf16, max_batch_tokens, max_head_rows, max_model_len,
            block_size, epoch);
  }
};

/// What a worker has found once its model is loaded.
struct WorkerReport {
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes_per_block = 0;

  template <class Archive>
  void fields(Archive& archive) {
    archive(weight_bytes, kv_bytes_per_block);
  }
};

/// The actor that runs one rank's part of the model. The driver loads and starts it; from then on a
/// thread of its own takes plans from the step plane. The first worker of a node talks to the
/// executor and fans each plan out to the node's other workers through shared memory.
///
/// A step that fails ends the actor, and the reason goes to whoever watches it.
class Worker {
 public:
  Worker(ActorContext& context, WorkerSpec spec);
  ~Worker();

  /// Reads its slices of the checkpoint and joins its tensor group.
  Result<WorkerReport> load();

  /// Allocates the KV cache and begins to serve steps. Returns the address that the executor must
  /// connect to; empty for workers that are not the first of their node.
  Result<std::string> start(std::int64_t kv_blocks);

  using Arguments = troupe::Arguments<WorkerSpec>;
  using Methods = troupe::Methods<&Worker::load, &Worker::start>;
  static constexpr std::string_view actor_type = "Worker";

 private:
  Result<void> join_group();
  void serve();
  Result<void> serve_step();

  ActorContext& context_;
  WorkerSpec spec_;
  std::unique_ptr<Collectives> tensor_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<StepPlane> step_plane_;
  std::atomic<bool> stopping_ = false;
  std::thread loop_;
};

/// What a replica's group is called: the prefix of its regions of shared memory.
std::string group_name(std::uint32_t epoch, std::int32_t replica);
/// The purpose under which both ends derive the keys of a replica's step channel.
std::string step_channel_purpose(std::uint32_t epoch, std::int32_t replica);

}  // namespace troupe
