#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/api/load_progress.hpp"
#include "actors/step/peak_sink.hpp"
#include "actors/worker/startup/device_memory_report.hpp"
#include "models/checkpoint/checkpoint.hpp"
#include "models/kv_policy/kv_policy.hpp"
#include "models/ops/device/device.hpp"
#include "models/ops/kv_residual.hpp"
#include "models/ops/linear.hpp"
#include "parallel/mesh/mesh.hpp"
#include "runtime/actor/actor_handle.hpp"

namespace troupe {

/// The parameters of a worker. The workers of an engine differ in `rank` only.
struct WorkerSpec {
  std::string model_path;
  LoadFormat load_format = LoadFormat::safetensors;
  std::int32_t rank = 0;  ///< in the mesh
  std::int32_t data_parallel_size = 1;
  std::int32_t pipeline_parallel_size = 1;
  std::int32_t context_parallel_size = 1;
  std::int32_t tensor_parallel_size = 1;
  std::int32_t expert_parallel_size = 1;
  bool sequence_parallel = false;
  bool data_parallel_attention = false;  ///< see Mesh::create
  std::string collectives = "shm";       ///< within a node
  std::vector<std::string> nodes = {};   ///< the node of each rank; empty: all on one
  DeviceKind device = DeviceKind::cpu;
  std::int32_t threads = 1;                         ///< of its model's operations
  DType dtype = DType::f32;                         ///< of weights and KV cache: f32 or bf16
  std::optional<DType> kv_codes = {};               ///< of the KV cache, in place of dtype
  KvResiduals kv_residuals = {};                    ///< see ModelLimits
  WeightEncoding encoding = WeightEncoding::plain;  ///< of the layers' matrices
  std::optional<bool> quantize_head = {};           ///< see ModelLimits
  bool deterministic = false;  ///< GPUs give the same bits whatever the batch and the tensor size
  /// Layers with larger activations in 8 bits are told to the executor; infinity: none is watched.
  float max_activation = std::numeric_limits<float>::infinity();
  bool cascade_attention = true;  ///< on GPUs: a prefix that sequences share is read once a step
  std::int64_t max_batch_tokens = 2048;
  std::int64_t max_head_rows = 256;
  std::int64_t max_model_len = 0;
  std::int32_t block_size = 16;
  KvPolicy kv_policy = {};                       ///< which tokens the KV cache keeps
  std::string draft_model_path = {};             ///< the draft model; empty: none
  std::int32_t draft_tokens = 0;                 ///< the most tokens that it guesses
  ActorHandle<LoadProgress> load_progress = {};  ///< receives the loading progress; may be empty

  DType kv_dtype() const { return kv_codes.value_or(dtype); }

  template <class Archive>
  void fields(Archive& archive) {
    archive(model_path, load_format, rank, data_parallel_size, pipeline_parallel_size,
            context_parallel_size, tensor_parallel_size, expert_parallel_size, sequence_parallel,
            data_parallel_attention, collectives, nodes, device, threads, dtype, kv_codes,
            kv_residuals, encoding, quantize_head, deterministic, max_activation, cascade_attention,
            max_batch_tokens, max_head_rows, max_model_len, block_size, kv_policy, draft_model_path,
            draft_tokens, load_progress);
  }
};

/// The mesh of a spec's sizes. Errors: as Mesh::create.
Result<Mesh> mesh_of(const WorkerSpec& spec);

/// Those of `ranks` that are on the node of the spec's rank, in their order.
std::vector<int> ranks_here(const WorkerSpec& spec, std::span<const int> ranks);

/// True for the rank that sends its replica's step results to the executor: the first of the last
/// stage.
bool answers_steps(const Mesh& mesh, int rank);

/// The executor of a worker's replica: its node, empty where all are on one, and its process, 0 if
/// any of this user may connect.
struct ExecutorPlace {
  std::string name;
  std::string node;
  std::int32_t pid = 0;
  ActorHandle<PeakSink> peaks = {};  ///< the executor itself; may be empty

  template <class Archive>
  void fields(Archive& archive) {
    archive(name, node, pid, peaks);
  }
};

/// What a worker reports once its model is loaded.
struct WorkerReport {
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes_per_block = 0;
  DeviceMemoryReport device;
  std::optional<std::uint64_t> free_host_bytes = {};  ///< of its node, if known

  template <class Archive>
  void fields(Archive& archive) {
    archive(weight_bytes, kv_bytes_per_block, device, free_host_bytes);
  }
};

}  // namespace troupe
