#include "actors/worker/worker.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <iterator>
#include <numeric>
#include <utility>

#include <pthread.h>

#include "actors/worker/startup/own_device.hpp"
#include "actors/worker/startup/warm_up.hpp"
#include "actors/worker/step_plane.hpp"
#include "models/families/family.hpp"
#include "models/model/footprint.hpp"
#include "models/ops/gpu_attention.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/available_memory.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/log.hpp"
#include "runtime/process/cpu_affinity.hpp"

namespace troupe {
namespace {

constexpr auto answer_timeout = std::chrono::seconds(30);
constexpr auto idle_wait = std::chrono::milliseconds(1000);
constexpr auto no_wait = std::chrono::milliseconds(0);
/// How long telemetry waits for counts that a step is changing.
constexpr auto counts_wait = std::chrono::milliseconds(200);
/// How long a worker whose step failed because another one is gone waits to be asked to leave.
/// Supervision finds a dead process at once and a silent one in 1.8 s, and the driver may be busy
/// for some seconds; if nobody asks, a link alone has broken.
constexpr auto leave_wait = std::chrono::seconds(12);
/// Device memory for captured passes of all lengths, and for kernels, which are loaded when first
/// used.
constexpr std::uint64_t recordings_bytes = std::uint64_t{128} << 20;
constexpr std::uint64_t kernels_bytes = std::uint64_t{256} << 20;
/// Device memory for staging blocks on their way to host memory, if they are no larger.
constexpr std::uint64_t swap_bytes = std::uint64_t{32} << 20;

}  // namespace

Worker::Worker(ActorContext& context, WorkerSpec spec)
    : GroupMember(context), context_(context), spec_(std::move(spec)) {}

Worker::~Worker() { end_serving(); }

void Worker::end_serving() {
  {
    const std::lock_guard lock(stop_mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  if (step_plane_) step_plane_->interrupt();
  abort_with_devices();
  if (loop_.joinable()) loop_.join();
}

void Worker::leave() {
  const bool joined_devices = groups_ && groups_->on_devices();
  if (!step_plane_ && !joined_devices) return;
  end_serving();  // a start() that failed has not ended what it enqueued
  stopping_ = false;
  if (step_plane_) step_plane_->release(context_);
  step_plane_.reset();
  // Steps that were begun read the runner's memory. Until all have left, others may still write to
  // memory that this device shares: it stays.
  if (ops_) end_device_work();
  drop_runner();
  log::info("{}: left epoch {} after step {}", place(), seat().epoch, step_.load());
}

void Worker::end_device_work() {
  const Result<void> ended = ops_->stream().synchronize();
  if (ended.ok() || ended.error().code == ErrorCode::cancelled) return;
  context_.exit(fmt::format("{}, after step {}: {}", place(), step_.load(), ended.error().message));
}

void Worker::drop_runner() {
  if (runner_) earlier_rows_ += runner_->rows() - uncounted_rows_;
  uncounted_rows_ = 0;
  runner_.reset();
}

Result<void> Worker::rejoin(const WorkerGroups::Find& find) {
  drop_runner();             // of a start() that failed
  model_->discard_passes();  // recorded ones read the runner's memory
  if (!groups_->on_devices()) return groups_->rejoin(find, spec_.nodes);
  groups_->leave_devices();
  end_device_work();
  TROUPE_CHECK(groups_->rejoin(find, spec_.nodes));
  return groups_->join_devices(*ops_);
}

Result<std::vector<CommunicatorSpec>> Worker::communicators() {
  TROUPE_TRY(config_, load_model_config(spec_.model_path));
  const auto stage_bytes =
      static_cast<std::size_t>(spec_.max_batch_tokens * config_.hidden_size) * size_of(DType::f32);
  return WorkerGroups::communicators(spec_, stage_bytes);
}

void Worker::abort_with_devices() {
  if (groups_) groups_->abort();
  abort_group();
}

Result<WorkerReport> Worker::load(std::vector<std::string> nodes) {
  spec_.nodes = std::move(nodes);
  const auto find = [this](std::string_view name) { return collectives(name); };
  if (report_) {
    TROUPE_CHECK(rejoin(find));
    return *report_;
  }
  PhaseTimes times;
  // Headers are read while the device initialises.
  auto opening = std::async(std::launch::async, [this] {
    return Checkpoint::open(spec_.model_path, spec_.load_format, config_.dtype);
  });
  TROUPE_TRY(groups_, WorkerGroups::create(spec_, find, recorder_));
  const DType dtype = spec_.dtype;
  const auto cores = usable_cpu_count();
  std::vector<int> workers(static_cast<std::size_t>(groups_->mesh().world_size()));
  std::iota(workers.begin(), workers.end(), 0);
  const std::int64_t threads =
      spec_.threads * static_cast<std::int64_t>(ranks_here(spec_, workers).size());
  TROUPE_TRY(const int device, find_device());
  times.note("library");
  TROUPE_TRY(ops_, make_ops({.kind = spec_.device,
                             .dtype = dtype,
                             .device = device,
                             .threads = spec_.threads,
                             .cores_are_shared = threads > cores,
                             .encoding = spec_.encoding,
                             .widens_codes = std::isfinite(spec_.max_activation),
                             .deterministic = spec_.deterministic}));
  times.note("device");
  const DeviceMemory before = ops_->memory().available().value_or(DeviceMemory{});
  if (spec_.device != DeviceKind::cpu) TROUPE_CHECK(groups_->join_devices(*ops_));
  times.note("ranks");
  TROUPE_TRY(const Checkpoint checkpoint, opening.get());
  if (const auto text = checkpoint.quantization().describe(); !text.empty()) {
    log::info("{}: {}", spec_.model_path, text);
  }
  times.note("checkpoint");
  const ModelLimits limits{.max_batch_tokens = spec_.max_batch_tokens,
                           .max_head_rows = spec_.max_head_rows,
                           .max_positions = spec_.max_model_len,
                           .block_size = spec_.block_size,
                           .threads = spec_.threads,
                           .encoding = spec_.encoding,
                           .quantize_head = spec_.quantize_head,
                           .compute = dtype,
                           .kv_dtype = spec_.kv_dtype(),
                           .kv_residuals = spec_.kv_residuals,
                           .kv_policy = spec_.kv_policy,
                           .cascade_attention = spec_.cascade_attention,
                           .exact_sums = spec_.deterministic,
                           .max_activation = spec_.max_activation};
  auto model = load_model(config_, checkpoint, *ops_, groups_->context(), limits,
                          [this](const LoadedWeights& loaded) { tell(loaded); });
  if (!model.ok()) return not_loaded(std::move(model).error(), checkpoint, before);
  model_ = *std::move(model);
  times.note("weights");
  const LoadedWeights& loaded = model_->loaded();
  tell({.bytes = model_->weight_bytes(), .total_bytes = model_->weight_bytes()});
  if (loaded.bytes > 0) {
    log::info("{}: {} of weights in {:.2f} s, {:.1f} GB/s; {} past the page cache", place(),
              in_gib(loaded.bytes), loaded.seconds,
              static_cast<double>(loaded.bytes) * 1e-9 / loaded.seconds,
              in_gib(loaded.direct_bytes));
  }
  WorkerReport report{model_->weight_bytes(), model_->kv_bytes_per_block(), {}, {}};
  if (!spec_.draft_model_path.empty() && answers_steps(groups_->mesh(), spec_.rank)) {
    ModelLimits of_draft = limits;
    of_draft.max_activation = ModelLimits().max_activation;
    TROUPE_TRY(Drafter drafter, Drafter::create(spec_.draft_model_path, spec_.load_format, config_,
                                                of_draft, *ops_));
    drafter_ = std::make_unique<Drafter>(std::move(drafter));
    report.weight_bytes += drafter_->weight_bytes();
    report.kv_bytes_per_block += drafter_->kv_bytes_per_block();
    times.note("draft model");
  }
  report.free_host_bytes = available_memory_bytes();
  if (const auto after = ops_->memory().available()) {
    report.device = device_memory_report(before, *after, report.weight_bytes, later_bytes());
  }
  for (const std::string& kernel : model_->kernels()) log::info("{}: {}", place(), kernel);
  log::info("{}: loaded {} in {}; {} bytes of weights, {} threads", place(), spec_.model_path,
            times.text(), model_->weight_bytes(), spec_.threads);
  if (report.device.total > 0) log::info("{}: of {}", place(), describe(report.device));
  report_ = report;
  return report;
}

void Worker::tell(const LoadedWeights& loaded) const {
  if (!spec_.load_progress) return;
  const LoadingState state{spec_.rank, loaded.bytes, loaded.total_bytes};
  spec_.load_progress.call<&LoadProgress::note>(state).then([](const Result<void>& noted) {
    if (!noted.ok()) log::debug("the driver was not told: {}", noted.error().message);
  });
}

std::uint64_t Worker::later_bytes() const {
  const ModelLimits& limits = model_->limits();
  const ShardOf first{0, groups_->mesh().shape().tensor};
  std::int64_t rows = ceil_slice(limits.max_head_rows, first).count;
  if (drafter_) rows += limits.max_head_rows;
  const auto logits = static_cast<std::uint64_t>(rows * config_.vocab_size) * size_of(DType::f32);
  const bool has_codes = spec_.device == DeviceKind::cuda && spec_.kv_codes;
  const std::uint64_t of_codes = has_codes ? coded_prompt_bytes : 0;
  return logits + (model_->supports_graph() ? recordings_bytes : 0) + kernels_bytes + swap_bytes +
         of_codes;
}

Error Worker::not_loaded(Error error, const Checkpoint& checkpoint,
                         const DeviceMemory& before) const {
  if (error.code != ErrorCode::resource_exhausted) return error;
  const DType dtype = spec_.dtype;
  const auto wanted = rank_footprint(config_, checkpoint, groups_->mesh(), spec_.rank,
                                     {.compute = dtype,
                                      .kv_dtype = spec_.kv_dtype(),
                                      .block_size = spec_.block_size,
                                      .on_gpu = true,
                                      .shares_tables = true});
  error = with_memory_of_load(std::move(error), before, wanted.ok() ? wanted->weight_bytes : 0,
                              spec_.max_batch_tokens);
  return {error.code, fmt::format("{}: {}", place(), error.message)};
}

Error Worker::not_started(Error error, std::int64_t kv_blocks) const {
  if (error.code != ErrorCode::resource_exhausted) return error;
  error = with_memory_of_start(
      std::move(error), ops_->memory().available().value_or(DeviceMemory{}), model_->weight_bytes(),
      static_cast<std::uint64_t>(kv_blocks) * model_->kv_bytes_per_block());
  return {error.code, fmt::format("{}: {}", place(), error.message)};
}

Result<int> Worker::find_device() const {
  if (spec_.device == DeviceKind::cpu) return 0;
  TROUPE_TRY(const int usable, count_gpus());
  TROUPE_TRY(const int device, own_device(context_.device_ids(), usable, place()));
  const auto folder = gpu_folder(device);
  if (const auto cpus = folder.ok() ? bind_to_cpus_near(*folder) : std::nullopt) {
    log::info("{}: runs on the {} CPUs that GPU {} is attached to", place(), *cpus, device);
  }
  return device;
}

Result<StartedWorker> Worker::start(std::int64_t kv_blocks, std::int64_t swap_blocks,
                                    const ExecutorPlace& executor) {
  if (!model_) return fail(ErrorCode::invalid_argument, "start() before load()");
  PhaseTimes times;
  Result<void> allocated = allocate_steps(kv_blocks, times);
  if (!allocated.ok()) return not_started(std::move(allocated).error(), kv_blocks);
  if (swap_blocks > 0) {
    const Result<void> swaps = runner_->allow_swaps(swap_blocks);
    if (!swaps.ok()) {
      return fail(swaps.error().code, "{}: host memory for {} swapped KV blocks: {}", place(),
                  swap_blocks, swaps.error().message);
    }
    times.note("host memory for swaps");
  }
  TROUPE_TRY(StepPlane plane, StepPlane::open(context_, spec_, seat().epoch, executor));
  step_plane_ = std::make_unique<StepPlane>(std::move(plane));
  model_->restart_peaks();
  peak_sink_ = executor.peaks;
  times.note("step plane");
  log::info("{}: began to serve in {}", place(), times.text());
  if (const auto memory = ops_->memory().available()) {
    log::info("{}: {} of the device's {} are free", place(), in_gib(memory->free_bytes),
              in_gib(memory->total_bytes));
  }
  if (since_ns_ == 0) since_ns_ = monotonic_ns();
  loop_ = std::thread([this] { serve(); });
  return StartedWorker{step_plane_->addresses(), context_.address().incarnation};
}

Result<void> Worker::allocate_steps(std::int64_t kv_blocks, PhaseTimes& times) {
  const bool is_again = kv_blocks_ != 0;
  if (is_again && kv_blocks != kv_blocks_) {
    return fail(ErrorCode::invalid_argument, "{} KV blocks, not {} as before", kv_blocks,
                kv_blocks_);
  }
  if (!is_again) {
    TROUPE_CHECK(model_->allocate_kv_cache(ModelRunner::blocks_to_allocate(*model_, kv_blocks)));
  }
  times.note("KV cache");
  TROUPE_TRY(ModelRunner runner,
             ModelRunner::create(*model_, *ops_, groups_->context(), kv_blocks));
  runner_ = std::make_unique<ModelRunner>(std::move(runner));
  times.note("buffers");
  if (!spec_.draft_model_path.empty()) {
    runner_->enable_drafting();
  } else if (model_->supports_graph()) {
    const std::vector<std::int64_t> before = model_->expert_load().rows;
    const Result<void> warmed_up = warm_up(*runner_, *model_, kv_blocks);
    uncounted_rows_ = runner_->rows();  // also of one that has failed: start() may come again
    const std::vector<std::int64_t> after = model_->expert_load().rows;
    uncounted_expert_rows_.resize(before.size());
    for (std::size_t i = 0; i < after.size(); ++i)  // none if the device has failed
      uncounted_expert_rows_[i] += after[i] - before[i];
    TROUPE_CHECK(warmed_up);
    times.note("warm-up");
  }
  runner_->record_spans(recorder_);
  if (drafter_) {
    if (!is_again) TROUPE_CHECK(drafter_->allocate_kv_cache(kv_blocks));
    runner_->set_drafter(*drafter_, spec_.draft_tokens);
    times.note("draft model");
  }
  kv_blocks_ = kv_blocks;
  return {};
}

std::string Worker::place() const { return groups_->mesh().describe(spec_.rank); }

void Worker::serve() {
  ::pthread_setname_np(::pthread_self(), step_thread_name);
  while (!stopping_) {
    const Result<void> served = serve_step();
    if (served.ok() || stopping_) continue;
    const std::string why =
        fmt::format("{}, step {}: {}", place(), step_.load(), served.error().message);
    log::error("{}", why);
    // Another rank has aborted the group and reports why; this error would hide that one.
    if (served.error().code == ErrorCode::cancelled) return;
    abort_with_devices();  // the others must not wait for this rank
    const bool others_are_gone = served.error().code == ErrorCode::peer_died;
    if (others_are_gone && wait_for_leave()) return;
    context_.exit(why);
    return;
  }
}

bool Worker::wait_for_leave() {
  std::unique_lock lock(stop_mutex_);
  Deadline deadline(leave_wait);
  return wait_until(stopped_, lock, deadline, [this] { return stopping_.load(); });
}

ProcessTelemetry Worker::telemetry(bool all) {
  ProcessTelemetry seen;
  seen.process = context_.name();
  seen.role = ProcessRole::worker;
  seen.index = spec_.rank;
  seen.since_ns = since_ns_;
  if (since_ns_ == 0) return seen;
  const MeshCoordinates at = groups_->mesh().coordinates(spec_.rank);
  seen.replica = at.data;
  seen.stage = at.stage;
  seen.place = place();
  seen.exchanges_on_device = groups_->on_devices();
  if (all) {
    const std::unique_lock between_steps(step_mutex_, counts_wait);
    seen.kept = recorder_.spans();
    seen.traffic = tcp_traffic();
    seen.kernels = model_->kernels();
    if (between_steps.owns_lock()) {
      seen.rows = earlier_rows_ + (runner_ ? runner_->rows() - uncounted_rows_ : 0);
      seen.expert_rows = expert_rows();
    }
  }
  seen.totals = recorder_.totals();
  seen.now_ns = monotonic_ns();
  return seen;
}

RankState Worker::state() {
  RankState state{.rank = spec_.rank,
                  .incarnation = context_.address().incarnation,
                  .step = step_,
                  .is_in_step = is_in_step_};
  if (groups_) state.groups = groups_->states();
  return state;
}

ExpertRows Worker::expert_rows() const {
  ExpertLoad load = model_->expert_load();
  // There are no counts if the device has failed.
  for (std::size_t i = 0; i < std::min(load.rows.size(), uncounted_expert_rows_.size()); ++i) {
    load.rows[i] -= uncounted_expert_rows_[i];
  }
  return {.first_layer = load.first_layer,
          .layers = load.layers,
          .first_expert = load.first_expert,
          .experts = load.experts,
          .rows = std::move(load.rows)};
}

Result<void> Worker::serve_step() {
  if (runner_->begun() > 0 && (!runner_->can_begin() || is_ready())) return finish_step();
  TROUPE_TRY(const std::optional<StepPlan> plan, next_plan());
  if (!plan) return {};
  if (plan->epoch != seat().epoch) {
    log::warning("dropped a plan of epoch {}; this is epoch {}", plan->epoch, seat().epoch);
    return {};
  }
  const std::lock_guard lock(step_mutex_);
  step_ = plan->step;
  is_in_step_ = true;
  return runner_->begin(*plan);
}

bool Worker::is_ready() {
  const std::lock_guard lock(step_mutex_);
  return runner_->is_ready();
}

Result<std::optional<StepPlan>> Worker::next_plan() {
  // While the device works, only check if the next plan is there.
  const bool idle = runner_->begun() == 0;
  SpanScope waiting(idle ? &recorder_ : nullptr, SpanKind::wait_plan);
  Result<StepPlan> plan = step_plane_->receive(deadline_in(idle ? idle_wait : no_wait));
  if (plan.ok()) {
    waiting.set_step(plan->step);
    recorder_.set_step(plan->step);
    return std::optional(*std::move(plan));
  }
  if (plan.error().code != ErrorCode::timed_out) return std::move(plan).error();
  if (!idle) std::this_thread::yield();
  return std::optional<StepPlan>();  // having nothing to do is no error
}

void Worker::tell_peaks() {
  std::vector<LayerPeak> peaks = model_->take_peaks();
  if (peaks.empty() || !peak_sink_) return;
  // If the executor is gone, start() of the next epoch has them told again.
  peak_sink_.call<&PeakSink::note_peaks>(spec_.rank, std::move(peaks))
      .then([](const Result<void>& noted) {
        if (!noted.ok()) log::debug("peaks were not told: {}", noted.error().message);
      });
}

Result<void> Worker::finish_step() {
  step_ = runner_->first_begun();
  Result<StepResult> result = [&] {
    const std::lock_guard lock(step_mutex_);
    return runner_->finish();
  }();
  if (!result.ok()) return std::move(result).error();
  is_in_step_ = runner_->begun() > 0;
  tell_peaks();
  const SpanScope scope(&recorder_, SpanKind::reply);
  return step_plane_->answer(*result, deadline_in(answer_timeout));
}

}  // namespace troupe
