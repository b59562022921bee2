#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "actors/api/load_progress.hpp"
#include "actors/api/report.hpp"
#include "actors/scheduler/scheduler_config.hpp"
#include "actors/telemetry/process_telemetry.hpp"
#include "models/checkpoint/checkpoint.hpp"
#include "models/kv_policy/kv_policy.hpp"
#include "models/ops/device/device.hpp"
#include "models/ops/kv_residual.hpp"
#include "models/ops/linear.hpp"
#include "runtime/actor/actor_down.hpp"

namespace troupe {

/// How often an engine goes on by itself after it has lost a process.
struct RestartLimit {
  std::int32_t max = 0;  ///< recoveries within per_minutes; 0: none, each loss ends the engine
  std::int32_t per_minutes = 10;
  std::int32_t wait_seconds = 300;  ///< for a node in place of a lost one
};

/// The engine that a driver builds: a model, its parallel layout, and its limits.
struct EngineSpec {
  std::string model_path;
  LoadFormat load_format = LoadFormat::safetensors;
  std::int32_t data_parallel_size = 1;      ///< replicas
  std::int32_t pipeline_parallel_size = 1;  ///< stages of a replica
  std::int32_t context_parallel_size = 1;   ///< ranks that share the rows of a step
  std::int32_t tensor_parallel_size = 1;
  std::int32_t expert_parallel_size = 1;  ///< ranks over which whole experts are distributed
  bool sequence_parallel = false;         ///< norms and residuals divided over the tensor ranks
  bool data_parallel_attention = false;   ///< replicas share dense layers: see Mesh::create
  std::string collectives = "shm";        ///< transport of tensors between workers: shm or network
  DeviceKind device = DeviceKind::cpu;
  double device_memory_utilization = 0.92;  ///< share of a GPU's memory that an engine may take
  std::int32_t threads_per_worker = 1;
  DType dtype = DType::f32;                         ///< of weights and KV cache: f32 or bf16
  std::optional<DType> kv_codes = {};               ///< see WorkerSpec
  KvResiduals kv_residuals = {};                    ///< see ModelLimits
  WeightEncoding encoding = WeightEncoding::plain;  ///< of the layers' matrices
  std::optional<bool> quantize_head = {};           ///< see ModelLimits
  bool deterministic = false;                       ///< see WorkerSpec
  float max_activation = std::numeric_limits<float>::infinity();  ///< see WorkerSpec
  std::int64_t max_model_len = 2048;                              ///< tokens of prompt and answer
  std::int32_t max_num_seqs = 256;
  std::int32_t max_num_batched_tokens = 2048;
  std::int32_t block_size = 16;
  std::int64_t kv_cache_blocks = 0;  ///< 0: as many as max_num_seqs can use, within half the free
                                     ///< memory
  /// Host memory of each worker for evicted sequences; none: decided by choose_swap_blocks.
  std::optional<std::uint64_t> swap_bytes = {};
  std::int32_t cache_groups = 1;  ///< of the model; each has its own block tables
  KvPolicy kv_policy = {};        ///< which tokens the KV cache keeps
  bool chunked_prefill = true;
  bool prefix_caching = true;     ///< prompts with a common prefix share its blocks
  bool cascade_attention = true;  ///< see WorkerSpec
  bool async_scheduling = true;   ///< a step is planned while the one before it runs
  SchedulingPolicy scheduling_policy = SchedulingPolicy::fcfs;
  SpeculationConfig speculation = {};
  RestartLimit restart = {};
  /// A step domain that has lost a node and finds no other is dropped while another one serves, and
  /// comes back once there are places. Needs restart.max.
  bool elastic = false;
  std::string draft_model_path = {};  ///< for SpeculationConfig::Method::draft_model
  std::int64_t created =
      0;  ///< of the job, in seconds since 1970: the time that chat templates see

  DType kv_dtype() const { return kv_codes.value_or(dtype); }
};

/// Properties of a started engine.
struct EngineInfo {
  std::int64_t kv_cache_blocks = 0;
  std::int64_t swap_blocks = 0;    ///< in host memory
  std::uint64_t weight_bytes = 0;  ///< of all workers
  std::uint64_t kv_bytes = 0;      ///< of all workers

  template <class Archive>
  void fields(Archive& archive) {
    archive(kv_cache_blocks, swap_blocks, weight_bytes, kv_bytes);
  }
};

/// A recovery, as it is reported when it begins, when more is lost meanwhile, and when it has
/// ended.
struct EngineRecovery {
  std::vector<ActorDown> lost;  ///< in the order of their reports; see cause_of
  /// From the first report until the first step after it; absent while it goes on.
  std::optional<double> seconds = {};
  std::uint64_t sequences = 0;  ///< that lost their KV and are computed anew
  LostWork lost_work = {};      ///< theirs
  /// Tokens that lost executors had counted in reports, but not handed over yet
  /// (EngineReport::progress), and which are sampled again.
  std::uint64_t unsaved_tokens = 0;
  std::uint32_t epoch = 0;  ///< of the workers' group from then on
  /// Hashes of the prompts of requests that are given up, because processes that had them crashed
  /// or hung again and again (32 hexadecimal digits of XXH3-128).
  std::vector<std::string> given_up = {};
  /// Requests that were under way in this crash and in the one before. They are computed one at a
  /// time, each until it is further than it was then.
  std::size_t suspects = 0;
  /// If a rank hung: where each was, a line for each of its groups.
  std::vector<std::string> hang = {};
};

/// A wait for nodes in place of lost ones. It is reported when it has lasted for a second, when
/// more are lost or an agent that came is refused meanwhile, and when it has ended well.
struct EngineWait {
  std::int32_t domain = 0;                ///< of whose ranks the places are
  std::vector<std::string> lost;          ///< nodes; after more are lost, all of them
  std::vector<std::string> refused = {};  ///< agents since the last report, "NAME: why"
  std::vector<std::string> found = {};    ///< the nodes in their place; empty: it goes on
  double seconds = 0;                     ///< so far
  /// The domain is dropped meanwhile: it waits as long as the job runs. Then only refused agents
  /// are reported.
  bool is_dropped = false;
};

/// A step domain of an elastic engine is dropped, or serves again.
struct EngineDomainChange {
  enum class Kind {
    dropped,  ///< its processes end, and its requests are those of others
    back,     ///< it serves again, or for the first time (is_new)
    /// There was no place for it, and for those behind it, at the start: they come when nodes join.
    awaited,
    answered,  ///< the first answer since it is back
  };
  Kind kind = Kind::dropped;
  std::int32_t domain = 0;
  std::vector<std::string> nodes;  ///< of its ranks, each once: before it was dropped; now
  std::string why;                 ///< it is dropped
  std::size_t requests = 0;        ///< unanswered ones that others go on with
  std::int32_t serving = 0;        ///< domains from now on, of `all`
  std::int32_t all = 0;
  bool is_new = false;  ///< it had no node at the start, and has not served before
  /// Back: since it was dropped, or since the start. Answered: since the agent of the last of its
  /// nodes connected, or it was dropped if that was later.
  double seconds = 0;
  std::vector<ActorId> actors = {};  ///< that end with it
  std::uint64_t unsaved_tokens = 0;  ///< of its requests; see EngineRecovery
};

/// Callbacks of an engine. Called on the engine's threads; must not block.
struct EngineEvents {
  std::function<void(EngineReport)> on_report;
  /// A worker, the executor or their node is gone, and is not replaced; the engine answers nothing
  /// more. May be called more than once, as one death causes others.
  std::function<void(const ActorDown&)> on_down;
  /// The telemetry of a process, `all` of it or totals only, or why it could not be sent. May be
  /// empty: then none is requested.
  std::function<void(bool all, Result<ProcessTelemetry>)> on_telemetry = {};
  /// A worker's progress in loading weights, now and then. May be empty.
  std::function<void(const LoadingState&)> on_loading = {};
  /// The engine goes on without a lost process until that is replaced, or has recovered. May be
  /// empty.
  std::function<void(const EngineRecovery&)> on_recovery = {};
  /// A recovery waits for a node, or does no longer. May be empty.
  std::function<void(const EngineWait&)> on_wait = {};
  /// A step domain is dropped, or is back. May be empty.
  std::function<void(const EngineDomainChange&)> on_domain = {};
};

}  // namespace troupe
