#include "actors/worker/worker.hpp"

#include <chrono>
#include <utility>

#include "actors/worker/step_plane.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "parallel/collectives/self_collectives.hpp"
#include "parallel/collectives/shm_collectives.hpp"
#include "runtime/base/log.hpp"
#include "runtime/memory/shared_memory.hpp"

namespace troupe {
namespace {

constexpr auto answer_timeout = std::chrono::seconds(30);
constexpr auto idle_wait = std::chrono::seconds(1);

}  // namespace

Worker::Worker(ActorContext& context, WorkerSpec spec)
    : context_(context), spec_(std::move(spec)) {}

Worker::~Worker() {
  stopping_ = true;
  if (step_plane_) step_plane_->interrupt();
  if (tensor_) tensor_->abort();
  if (loop_.joinable()) loop_.join();
}

Result<WorkerReport> Worker::load() {
  const auto began = std::chrono::steady_clock::now();
  TROUPE_CHECK(join_group());
  const DType dtype = spec_.bf16 ? DType::bf16 : DType::f32;
  TROUPE_TRY(ops_, make_cpu_ops({.threads = spec_.threads, .dtype = dtype}));
  TROUPE_TRY(const ModelConfig config, ModelConfig::load(spec_.model_path));
  TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(spec_.model_path));
  const MeshShape shape{.data = spec_.data_parallel_size, .tensor = spec_.tensor_parallel_size};
  TROUPE_TRY(const Mesh mesh, Mesh::create(shape));
  const ModelLimits limits{.max_batch_tokens = spec_.max_batch_tokens,
                           .max_head_rows = spec_.max_head_rows,
                           .max_positions = spec_.max_model_len,
                           .block_size = spec_.block_size,
                           .compute = dtype,
                           .kv_dtype = dtype};
  const MeshCoordinates at{.data = spec_.replica, .tensor = spec_.tensor_rank};
  const ParallelContext parallel{shape, at, tensor_.get(), spec_.sequence_parallel};
  TROUPE_TRY(model_, load_model(config, checkpoint, *ops_, parallel, limits));
  log::info("{}: loaded {} in {} ms, {} bytes of weights, {} threads", mesh.describe(mesh.rank(at)),
            spec_.model_path,
            std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                  began)
                .count(),
            model_->weight_bytes(), spec_.threads);
  return WorkerReport{model_->weight_bytes(), model_->kv_bytes_per_block()};
}

Result<void> Worker::join_group() {
  if (spec_.tensor_parallel_size == 1) {
    tensor_ = std::make_unique<SelfCollectives>();
    return {};
  }
  TROUPE_TRY(UniqueFd fd,
             context_.shared_memory(group_name(spec_.epoch, spec_.replica) + "/tensor",
                                    shm_collectives_bytes(spec_.tensor_parallel_size)));
  TROUPE_TRY(SharedMemory region, SharedMemory::map(std::move(fd)));
  TROUPE_TRY(tensor_, ShmCollectives::attach(std::move(region), spec_.tensor_rank,
                                             spec_.tensor_parallel_size));
  return {};
}

Result<std::string> Worker::start(std::int64_t kv_blocks) {
  if (!model_) return fail(ErrorCode::invalid_argument, "start() before load()");
  TROUPE_CHECK(model_->allocate_kv_cache(kv_blocks));
  TROUPE_TRY(ModelRunner runner, ModelRunner::create(*model_, *ops_, *tensor_, kv_blocks));
  runner_ = std::make_unique<ModelRunner>(std::move(runner));
  TROUPE_TRY(step_plane_, StepPlane::open(context_, spec_));
  loop_ = std::thread([this] { serve(); });
  return step_plane_->address();
}

void Worker::serve() {
  while (!stopping_) {
    const Result<void> served = serve_step();
    if (served.ok() || stopping_) continue;
    log::error("tensor rank {}: {}", spec_.tensor_rank, served.error().message);
    // Another rank has aborted the group and tells why; this end would hide that one.
    if (served.error().code == ErrorCode::cancelled) return;
    tensor_->abort();  // the others must not wait for this rank
    context_.exit(fmt::format("tensor rank {}: {}", spec_.tensor_rank, served.error().message));
    return;
  }
}

Result<void> Worker::serve_step() {
  Result<StepPlan> plan = step_plane_->receive(deadline_in(idle_wait));
  if (!plan.ok()) {
    if (plan.error().code == ErrorCode::timeout) return {};  // nothing to do is no failure
    return std::move(plan).error();
  }
  if (plan->epoch != spec_.epoch) {
    log::warning("dropped a plan of epoch {}; this is epoch {}", plan->epoch, spec_.epoch);
    return {};
  }
  TROUPE_TRY(const StepResult result, runner_->run(*plan));
  return step_plane_->answer(result, deadline_in(answer_timeout));
}

}  // namespace troupe
