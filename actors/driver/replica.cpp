#include "actors/driver/replica.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "actors/driver/driver.hpp"
#include "runtime/base/log.hpp"

namespace troupe {
namespace {

/// Until a process is up. What dies meanwhile ends the wait at once.
constexpr auto spawn_timeout = std::chrono::seconds(30);
/// Until a checkpoint is read; large ones on slow disks take long.
constexpr auto load_timeout = std::chrono::hours(2);
constexpr auto start_timeout = std::chrono::minutes(10);

/// The error with the name of the actor it came from in front.
Error from_actor(std::string_view name, Error error) {
  error.message = fmt::format("{}: {}", name, error.message);
  return error;
}

}  // namespace

std::int64_t estimated_tokens(const Request& request) {
  constexpr std::int64_t chat_answer_tokens = 256;
  return static_cast<std::int64_t>(request.prompt.size() / 4 + request.prompt_ids.size()) +
         request.max_tokens.value_or(chat_answer_tokens);
}

Replica::Replica(Cluster& cluster, const EngineSpec& spec, std::int32_t index, std::uint32_t epoch)
    : cluster_(cluster), spec_(spec), index_(index), epoch_(epoch) {}

std::string Replica::executor_name() const {
  return spec_.data_parallel_size == 1 ? "executor" : fmt::format("executor-{}", index_);
}

std::string Replica::worker_name(std::size_t tensor_rank) const {
  return fmt::format("worker-{}", static_cast<std::size_t>(index_) *
                                          static_cast<std::size_t>(spec_.tensor_parallel_size) +
                                      tensor_rank);
}

WorkerSpec Replica::worker_spec(std::int32_t tensor_rank) const {
  return {.model_path = spec_.model_path,
          .replica = index_,
          .tensor_rank = tensor_rank,
          .data_parallel_size = spec_.data_parallel_size,
          .tensor_parallel_size = spec_.tensor_parallel_size,
          .sequence_parallel = spec_.sequence_parallel,
          .threads = spec_.threads_per_worker,
          .bf16 = spec_.bf16,
          .max_batch_tokens = spec_.max_num_batched_tokens,
          .max_head_rows = std::min(spec_.max_num_seqs, spec_.max_num_batched_tokens),
          .max_model_len = spec_.max_model_len,
          .block_size = spec_.block_size,
          .epoch = epoch_};
}

void Replica::begin_spawn(const ActorHandle<Driver>& driver) {
  spawning_executor_.push_back(cluster_.spawn<Executor>(
      {.name = executor_name()},
      ExecutorSpec{spec_.model_path, index_, spec_.max_model_len, driver}));
  for (std::int32_t rank = 0; rank < spec_.tensor_parallel_size; ++rank) {
    spawning_workers_.push_back(cluster_.spawn<Worker>(
        {.name = worker_name(static_cast<std::size_t>(rank)), .resources = {.devices = 1}},
        worker_spec(rank)));
  }
}

Result<void> Replica::finish_spawn(const DownCallback& on_down) {
  // The runtime's own errors name the actor already.
  const auto named = [](const std::string& name, Error error) {
    return error.code == ErrorCode::timeout ? from_actor(name, std::move(error)) : error;
  };
  auto executor = spawning_executor_.front().get(spawn_timeout);
  if (!executor.ok()) return named(executor_name(), std::move(executor).error());
  executor_ = *std::move(executor);
  watches_.push_back(cluster_.watch(executor_, on_down));
  for (std::size_t rank = 0; rank < spawning_workers_.size(); ++rank) {
    auto worker = spawning_workers_[rank].get(spawn_timeout);
    if (!worker.ok()) return named(worker_name(rank), std::move(worker).error());
    watches_.push_back(cluster_.watch(*worker, on_down));
    workers_.push_back(*std::move(worker));
  }
  return {};
}

void Replica::begin_load() {
  loading_executor_.push_back(executor_.call<&Executor::load>());
  for (const auto& worker : workers_) loading_workers_.push_back(worker.call<&Worker::load>());
}

Result<std::vector<WorkerReport>> Replica::finish_load() {
  std::vector<WorkerReport> reports;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    auto report = loading_workers_[i].get(load_timeout);
    if (!report.ok()) return from_actor(workers_[i].name(), std::move(report).error());
    reports.push_back(*report);
  }
  auto loaded = loading_executor_.front().get(load_timeout);
  if (!loaded.ok()) return from_actor(executor_.name(), std::move(loaded).error());
  return reports;
}

void Replica::begin_serve(std::int64_t kv_cache_blocks) {
  for (const auto& worker : workers_) {
    starting_workers_.push_back(worker.call<&Worker::start>(kv_cache_blocks));
  }
}

Result<void> Replica::finish_serve(std::int64_t kv_cache_blocks) {
  std::string step_address;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    auto address = starting_workers_[i].get(start_timeout);
    if (!address.ok()) return from_actor(workers_[i].name(), std::move(address).error());
    if (!address->empty()) step_address = *address;
  }
  auto started = executor_
                     .call<&Executor::start>(ExecutorStart{
                         .step_address = step_address,
                         .epoch = epoch_,
                         .max_num_seqs = spec_.max_num_seqs,
                         .max_num_batched_tokens = spec_.max_num_batched_tokens,
                         .block_size = spec_.block_size,
                         .kv_cache_blocks = static_cast<std::int32_t>(kv_cache_blocks),
                         .chunked_prefill = spec_.chunked_prefill})
                     .get(start_timeout);
  if (!started.ok()) return from_actor(executor_.name(), std::move(started).error());
  return {};
}

void Replica::submit(std::vector<Request> requests, const ActorHandle<Driver>& driver) {
  std::vector<std::uint64_t> ids;
  ids.reserve(requests.size());
  for (const Request& request : requests) {
    ids.push_back(request.id);
    const std::int64_t tokens = estimated_tokens(request);
    outstanding_.emplace(request.id, tokens);
    outstanding_tokens_ += tokens;
  }
  executor_.call<&Executor::submit>(std::move(requests))
      .then([ids = std::move(ids), replica = index_, driver](const Result<void>& taken) {
        // A death is told by the watch.
        if (taken.ok() || taken.error().code == ErrorCode::peer_died) return;
        driver.call<&Driver::refuse>(replica, ids, taken.error().message);
      });
}

void Replica::drain() {
  executor_.call<&Executor::drain>().then([](const Result<void>& drained) {
    if (!drained.ok()) log::error("drain: {}", drained.error().message);
  });
}

void Replica::account(const EngineReport& report) {
  const auto forget = [this](std::uint64_t id) {
    const auto found = outstanding_.find(id);
    if (found == outstanding_.end()) return;
    outstanding_tokens_ -= found->second;
    outstanding_.erase(found);
  };
  for (const Completion& completion : report.completions) forget(completion.id);
  for (const std::uint64_t id : report.dropped) forget(id);
  stats_ = report.stats;
}

}  // namespace troupe
