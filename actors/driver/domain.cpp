#include "actors/driver/domain.hpp"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include "actors/driver/driver.hpp"
#include "actors/driver/rank_placement.hpp"
#include "actors/executor/step_limit.hpp"
#include "runtime/base/available_memory.hpp"
#include "runtime/base/log.hpp"
#include "runtime/call/answers.hpp"

namespace troupe {
namespace {

/// Limit for a process to start. A death meanwhile ends the wait at once.
constexpr auto spawn_timeout = std::chrono::seconds(30);
/// Limit for reading a checkpoint; large ones on slow disks take long.
constexpr auto load_timeout = std::chrono::hours(2);
constexpr auto start_timeout = std::chrono::minutes(10);

StepLimit::Duration least_step_limit(DeviceKind device) {
  return device == DeviceKind::cpu ? StepLimit::least_on_cpus : StepLimit::least_on_gpus;
}

/// The most rows of a step that can need logits, not counting scored prompts.
std::int32_t max_head_rows(const EngineSpec& spec) {
  const bool guesses = spec.speculation.method != SpeculationConfig::Method::none;
  const std::int32_t each = guesses ? 1 + spec.speculation.tokens : 1;
  return std::min(spec.max_num_seqs * each, spec.max_num_batched_tokens);
}

SchedulerConfig scheduler_config(const EngineSpec& spec, const EngineInfo& info) {
  SchedulerConfig config;
  config.max_num_seqs = spec.max_num_seqs;
  config.max_num_batched_tokens = spec.max_num_batched_tokens;
  config.max_model_len = static_cast<std::int32_t>(spec.max_model_len);
  config.block_size = spec.block_size;
  config.kv_cache_blocks = static_cast<std::int32_t>(info.kv_cache_blocks);
  config.swap_blocks = static_cast<std::int32_t>(info.swap_blocks);
  config.micro_batches = spec.pipeline_parallel_size;
  config.max_steps_in_flight = spec.pipeline_parallel_size + (spec.async_scheduling ? 1 : 0);
  config.chunked_prefill = spec.chunked_prefill;
  config.prefix_caching = spec.prefix_caching;
  config.kv_policy = spec.kv_policy;
  config.policy = spec.scheduling_policy;
  config.speculation = spec.speculation;
  return config;
}

/// For the ledger of each of so many domains: together a sixteenth of the memory that is free when
/// the engine starts.
std::size_t ledger_bytes(int domains) {
  constexpr std::size_t least = std::size_t{64} << 20;
  const std::uint64_t free = available_memory_bytes().value_or(0);
  return std::max(least, static_cast<std::size_t>(free / 16) / static_cast<std::size_t>(domains));
}

}  // namespace

Domain::Domain(Cluster& cluster, const EngineSpec& spec, const Mesh& mesh,
               std::vector<PlacementGroup> groups, std::int32_t index,
               std::function<void(const EngineWait&)> on_wait, std::function<bool()> may_drop)
    : cluster_(cluster),
      spec_(spec),
      mesh_(mesh),
      groups_(std::move(groups)),
      nodes_(nodes_of_ranks(mesh, groups_)),
      index_(index),
      places_(cluster, placed().id, index, spec.restart, std::move(on_wait), std::move(may_drop)),
      ledger_(ledger_bytes(mesh.step_domains())) {}

std::string Domain::executor_name() const {
  return mesh_.shape().data == replicas() ? "executor" : fmt::format("executor-{}", index_);
}

WorkerSpec Domain::worker_spec(int rank, const ActorHandle<LoadProgress>& load_progress) const {
  return {.model_path = spec_.model_path,
          .load_format = spec_.load_format,
          .rank = rank,
          .data_parallel_size = spec_.data_parallel_size,
          .pipeline_parallel_size = spec_.pipeline_parallel_size,
          .context_parallel_size = spec_.context_parallel_size,
          .tensor_parallel_size = spec_.tensor_parallel_size,
          .expert_parallel_size = spec_.expert_parallel_size,
          .sequence_parallel = spec_.sequence_parallel,
          .data_parallel_attention = spec_.data_parallel_attention,
          .collectives = spec_.collectives,
          .nodes = nodes_,
          .device = spec_.device,
          .threads = spec_.threads_per_worker,
          .dtype = spec_.dtype,
          .kv_codes = spec_.kv_codes,
          .kv_residuals = spec_.kv_residuals,
          .encoding = spec_.encoding,
          .quantize_head = spec_.quantize_head,
          .deterministic = spec_.deterministic,
          .max_activation = spec_.max_activation,
          .cascade_attention = spec_.cascade_attention,
          .max_batch_tokens = spec_.max_num_batched_tokens,
          .max_head_rows = max_head_rows(spec_),
          .max_model_len = spec_.max_model_len,
          .block_size = spec_.block_size,
          .kv_policy = spec_.kv_policy,
          .draft_model_path = spec_.draft_model_path,
          .draft_tokens = spec_.speculation.tokens,
          .load_progress = load_progress};
}

void Domain::begin_spawn(const ActorHandle<Driver>& driver,
                         const ActorHandle<LoadProgress>& load_progress, OnCallFailed on_failed,
                         std::shared_ptr<LossNotes> notes) {
  driver_ = driver;
  on_failed_ = std::move(on_failed);
  notes_ = std::move(notes);
  const ActorHandle<ReportSink> reports = driver;
  spawning_executor_.push_back(cluster_.spawn<Executor>(
      // In the bundle of the rank that answers, so that it moves with that.
      {.name = executor_name(),
       .bundle = placed().bundle(bundle_of(mesh_, answering_rank(), placed().bundles.size())),
       .max_restarts = max_restarts(),
       .restarts_after_exit = can_restart()},
      ExecutorSpec{.model_path = spec_.model_path,
                   .domain = index_,
                   .max_model_len = spec_.max_model_len,
                   .created = spec_.created,
                   .keeps_progress = can_restart(),
                   .least_step_limit_us = least_step_limit(spec_.device).count(),
                   .reports = reports}));
  const int end = first_rank() + replicas() * workers_per_replica();
  for (int rank = first_rank(); rank < end; ++rank) {
    const std::size_t bundle = bundle_of(mesh_, rank, placed().bundles.size());
    spawning_workers_.push_back(
        cluster_.spawn<Worker>({.name = worker_name(rank),
                                .resources = {.devices = 1},
                                .bundle = placed().bundle(bundle),
                                .hides_other_devices = false,  // peers map its memory
                                .max_restarts = max_restarts(),
                                .restarts_after_exit = can_restart()},
                               worker_spec(rank, load_progress)));
  }
}

Result<void> Domain::finish_spawn(const DownCallback& on_down) {
  // The runtime's own errors already name the actor.
  const auto named = [](const std::string& name, Error error) {
    return error.code == ErrorCode::timed_out ? from_actor(name, std::move(error)) : error;
  };
  auto executor = spawning_executor_.front().get(spawn_timeout);
  if (!executor.ok()) return named(executor_name(), std::move(executor).error());
  executor_ = *std::move(executor);
  watches_.push_back(cluster_.watch(executor_, on_down));
  for (std::size_t i = 0; i < spawning_workers_.size(); ++i) {
    auto worker = spawning_workers_[i].get(spawn_timeout);
    if (!worker.ok()) {
      const int rank = first_rank() + static_cast<int>(i);
      return named(worker_name(rank), std::move(worker).error());
    }
    watches_.push_back(cluster_.watch(*worker, on_down));
    workers_.push_back(*std::move(worker));
  }
  return {};
}

std::vector<std::string> Domain::worker_names() const {
  std::vector<std::string> names;
  for (const auto& worker : workers_) names.emplace_back(worker.name());
  return names;
}

void Domain::begin_form() {
  loading_executor_.clear();
  loading_executor_.push_back(executor_.call<&Executor::load>());
  if (!group_) {
    group_.emplace(mesh_.shape().data == replicas() ? "workers" : fmt::format("workers-{}", index_),
                   std::vector<ActorHandle<GroupMember>>(workers_.begin(), workers_.end()));
  }
  // In a recovery members may be loading still, for the attempt before this one. A loss is the next
  // attempt's, so that it counts.
  const std::chrono::milliseconds limit =
      serving_.empty() ? std::chrono::milliseconds(start_timeout) : load_timeout;
  forming_ = std::async(std::launch::async, [this, limit] { return group_->form(limit, 1); });
}

Result<void> Domain::begin_load() {
  TROUPE_CHECK(forming_.get());
  note_places();
  loading_workers_.clear();
  for (const auto& worker : workers_) {
    loading_workers_.push_back(worker.call<&Worker::load>(nodes_));
  }
  return {};
}

void Domain::note_places() {
  const auto now = cluster_.placement_groups();
  for (PlacementGroup& group : groups_) {
    const auto found = std::ranges::find(now, group.id, &PlacementGroup::id);
    if (found != now.end()) group = *found;
  }
  nodes_ = nodes_of_ranks(mesh_, groups_);
}

Result<std::vector<WorkerReport>> Domain::finish_load() {
  TROUPE_TRY(auto reports,
             take_answers<WorkerReport>(loading_workers_, worker_names(), load_timeout));
  auto loaded = loading_executor_.front().get(load_timeout);
  if (!loaded.ok()) return from_actor(executor_.name(), std::move(loaded).error());
  loaded_executor_ = *loaded;
  return reports;
}

void Domain::begin_serve(const EngineInfo& info) {
  info_ = info;
  starting_workers_.clear();
  int executor_pid = 0;  // 0: its process has just died, as its watch reports
  for (const auto& actor : cluster_.actors()) {
    if (actor.address == executor_.address()) executor_pid = actor.pid;
  }
  const ExecutorPlace place{executor_name(), executor_node(), executor_pid, executor_};
  for (const auto& worker : workers_) {
    starting_workers_.push_back(
        worker.call<&Worker::start>(info.kv_cache_blocks, info.swap_blocks, place));
  }
}

Result<void> Domain::finish_serve(const EngineInfo& info) {
  TROUPE_TRY(const std::vector<StartedWorker> started_workers,
             take_answers<StartedWorker>(starting_workers_, worker_names(), start_timeout));
  std::vector<StepAddresses> started_at;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    serving_[workers_[i].id()] = started_workers[i].incarnation;
    started_at.push_back(started_workers[i].addresses);
  }
  std::vector<ReplicaAddresses> addresses;
  const auto workers = static_cast<std::size_t>(workers_per_replica());
  for (std::int32_t replica = 0; replica < replicas(); ++replica) {
    const auto first = static_cast<std::size_t>(replica) * workers;
    addresses.push_back(addresses_of(replica, std::span(started_at).subspan(first, workers)));
  }
  const bool is_again = started_at_ != std::chrono::steady_clock::time_point();
  started_at_ = std::chrono::steady_clock::now();
  hand_over();
  auto started =
      executor_
          .call<&Executor::start>(ExecutorStart{.replicas = std::move(addresses),
                                                .epoch = group_->epoch(),
                                                .scheduler = scheduler_config(spec_, info),
                                                .takes_over = is_again,
                                                .taken_back = taken_back_})
          .get(start_timeout);
  if (!started.ok()) return from_actor(executor_.name(), std::move(started).error());
  serving_[executor_.id()] = loaded_executor_;
  taken_back_.clear();
  give_due();
  return {};
}

Result<void> Domain::bring_up(const EngineInfo& info, PhaseTimes& times) {
  begin_form();
  TROUPE_CHECK(begin_load());
  times.note("processes and group");
  const auto loaded = finish_load();
  if (!loaded.ok()) return loaded.error();
  times.note("models");
  begin_serve(info);
  TROUPE_CHECK(finish_serve(info));
  times.note("caches and channels");
  return {};
}

void Domain::hand_over() {
  bool is_draining = false;
  {
    const std::lock_guard lock(requests_mutex_);
    if (executor_at_ == loaded_executor_) return;
    executor_at_ = loaded_executor_;
    ledger_.take_back_all();
    is_draining = is_draining_;
  }
  give_due();
  if (is_draining) drain();
}

void Domain::give_due() {
  std::vector<RequestLedger::Submission> due;
  std::uint32_t incarnation = 0;
  {
    const std::lock_guard lock(requests_mutex_);
    due = ledger_.take_due(std::chrono::steady_clock::now());
    incarnation = executor_at_.value_or(0);
  }
  for (auto& submission : due) {
    submit_again(incarnation, submission.replica, std::move(submission.requests));
  }
}

void Domain::end() { places_.give_up(); }

std::vector<RequestLedger::Unanswered> Domain::release_requests() {
  const std::lock_guard lock(requests_mutex_);
  executor_at_.reset();
  return ledger_.release_all();
}

void Domain::adopt(std::int32_t replica, RequestLedger::Unanswered request) {
  const std::lock_guard lock(requests_mutex_);
  ledger_.adopt(replica, std::move(request));
}

bool Domain::has(ActorId actor) const {
  return actor == executor_.id() ||
         std::ranges::any_of(workers_, [&](const auto& worker) { return worker.id() == actor; });
}

std::vector<ActorId> Domain::actors() const {
  std::vector<ActorId> actors{executor_.id()};
  for (const auto& worker : workers_) actors.push_back(worker.id());
  return actors;
}

std::vector<std::string> Domain::nodes() const {
  const auto first = static_cast<std::size_t>(first_rank());
  const std::int64_t ranks = std::int64_t{replicas()} * workers_per_replica();
  std::vector<std::string> nodes;
  for (const std::string& node :
       std::span(nodes_).subspan(first, static_cast<std::size_t>(ranks))) {
    if (std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
  }
  return nodes;
}

bool Domain::needs(const ActorDown& down) const {
  const auto found = serving_.find(down.id);
  return found != serving_.end() && down.incarnation >= found->second;
}

int Domain::answering_rank() const {
  int rank = first_rank();
  while (!answers_steps(mesh_, rank)) ++rank;
  return rank;
}

const std::string& Domain::executor_node() const {
  return nodes_[static_cast<std::size_t>(answering_rank())];
}

ReplicaAddresses Domain::addresses_of(std::int32_t replica,
                                      std::span<const StepAddresses> workers) const {
  ReplicaAddresses addresses;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const int rank = first_rank() + replica * workers_per_replica() + static_cast<int>(i);
    if (!workers[i].plans.empty()) {
      if (answers_steps(mesh_, rank)) {
        addresses.answering = static_cast<std::int32_t>(addresses.plans.size());
      }
      addresses.plans.push_back({rank, workers[i].plans});
    }
    if (!workers[i].results.empty()) addresses.results = StepAddress{rank, workers[i].results};
  }
  return addresses;
}

void Domain::submit(std::int32_t replica, std::vector<Request> requests) {
  std::uint32_t incarnation = 0;
  {
    const std::lock_guard lock(requests_mutex_);
    if (can_restart()) ledger_.add(replica, requests, std::chrono::steady_clock::now());
    incarnation = executor_at_.value_or(0);
  }
  std::vector<SubmittedRequest> submitted;
  submitted.reserve(requests.size());
  for (Request& request : requests) submitted.push_back({std::move(request), {}});
  submit_again(incarnation, replica, std::move(submitted));
}

void Domain::submit_again(std::uint32_t incarnation, std::int32_t replica,
                          std::vector<SubmittedRequest> requests) {
  const auto kept = std::make_shared<std::vector<SubmittedRequest>>(std::move(requests));
  executor_.call<&Executor::submit>(incarnation, replica, *kept)
      .then([kept, domain = index_, executor = executor_.id(), incarnation, replica,
             driver = driver_, on_failed = on_failed_](const Result<void>& taken) {
        switch (after_submission(taken)) {
          case AfterSubmission::nothing:
            return;
          case AfterSubmission::submit_again:
            log::warning("{} requests wait for the executor: {}", kept->size(),
                         taken.error().message);
            return call_until_taken<&Driver::submit_again>(driver, on_failed, domain, executor,
                                                           incarnation, replica, std::move(*kept));
          case AfterSubmission::refuse:
            std::vector<std::uint64_t> ids;
            for (const SubmittedRequest& submitted : *kept) ids.push_back(submitted.request.id);
            call_until_taken<&Driver::refuse>(driver, on_failed, domain, std::move(ids),
                                              std::string("internal_error"), taken.error().message);
        }
      });
}

AfterSubmission after_submission(const Result<void>& taken) {
  if (taken.ok()) return AfterSubmission::nothing;
  switch (taken.error().code) {
    case ErrorCode::resource_exhausted:
      return AfterSubmission::submit_again;
    case ErrorCode::peer_died:
    case ErrorCode::actor_died:
    case ErrorCode::actor_unavailable:  // the watch reports it: a recovery, or the engine's end
    case ErrorCode::cancelled:          // this process is ending
      return AfterSubmission::nothing;
    default:
      return AfterSubmission::refuse;
  }
}

void Domain::drain() {
  {
    const std::lock_guard lock(requests_mutex_);
    is_draining_ = true;
  }
  // A lost executor's next incarnation is told again.
  call_until_taken<&Executor::drain>(executor_, on_failed_);
}

void Domain::note_answers(EngineReport& report) {
  if (!can_restart()) return;
  {
    const std::lock_guard lock(requests_mutex_);
    ledger_.take(report, executor_at_ == report.incarnation);
  }
  give_due();
}

void Domain::note_stats(const EngineReport& report) {
  if (report.incarnation < stats_incarnation_) return;  // it is late, and that executor gone
  if (report.incarnation > stats_incarnation_) {
    stats_.running = stats_.waiting = 0;
    stats_.kv_use = 0;
    earlier_stats_.add(stats_);
    stats_incarnation_ = report.incarnation;
  }
  stats_ = report.stats;
}

std::uint64_t Domain::take_unsaved() {
  const std::lock_guard lock(requests_mutex_);
  return ledger_.take_unsaved();
}

double Domain::kept_share() {
  const std::lock_guard lock(requests_mutex_);
  return ledger_.used_share();
}

EngineStats Domain::stats() const {
  EngineStats all = earlier_stats_;
  all.add(stats_);
  return all;
}

std::int32_t Domain::ask_telemetry(bool all, const EngineEvents& events) {
  const auto tell = [all, told = events.on_telemetry](Result<ProcessTelemetry> seen) {
    told(all, std::move(seen));
  };
  executor_.call<&Executor::telemetry>(all).then(tell);
  for (const auto& worker : workers_) worker.call<&Worker::telemetry>(all).then(tell);
  return 1 + static_cast<std::int32_t>(workers_.size());
}

}  // namespace troupe
