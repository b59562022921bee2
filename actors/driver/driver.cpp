#include "actors/driver/driver.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <utility>

#include "actors/executor/request_intake.hpp"
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

/// MemAvailable of /proc/meminfo; 0 where that cannot be read.
std::uint64_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  std::uint64_t kib = 0;
  while (file >> key >> kib >> unit) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

}  // namespace

Driver::Driver(ActorContext& context, Cluster* cluster, EngineSpec spec, EngineEvents events)
    : context_(context), cluster_(cluster), spec_(std::move(spec)), events_(std::move(events)) {}

template <class A>
void Driver::watch(const ActorHandle<A>& actor) {
  watches_.push_back(cluster_->watch(actor, events_.on_down));
}

Result<EngineInfo> Driver::start() {
  TROUPE_CHECK(spawn());
  TROUPE_TRY(const auto reports, load());
  const std::int64_t blocks = choose_kv_cache_blocks(reports);
  if (blocks < 1) {
    return fail(ErrorCode::resource_exhausted,
                "there is no memory for a single KV block of {} tokens: free memory, or split the "
                "model over more workers",
                spec_.block_size);
  }
  TROUPE_CHECK(serve(blocks));
  EngineInfo info{.kv_cache_blocks = blocks};
  for (const WorkerReport& report : reports) {
    info.weight_bytes += report.weight_bytes;
    info.kv_bytes += report.kv_bytes_per_block * static_cast<std::uint64_t>(blocks);
  }
  return info;
}

Result<void> Driver::spawn() {
  auto executor = cluster_->spawn<Executor>(
      {.name = "executor"},
      ExecutorSpec{spec_.model_path, spec_.max_model_len, context_.self<Driver>()});
  std::vector<Future<ActorHandle<Worker>>> workers;
  for (std::int32_t rank = 0; rank < spec_.tensor_parallel_size; ++rank) {
    workers.push_back(cluster_->spawn<Worker>(
        {.name = fmt::format("worker-{}", rank), .resources = {.devices = 1}},
        WorkerSpec{.model_path = spec_.model_path,
                   .rank = rank,
                   .tensor_parallel_size = spec_.tensor_parallel_size,
                   .threads = spec_.threads_per_worker,
                   .bf16 = spec_.bf16,
                   .max_batch_tokens = spec_.max_num_batched_tokens,
                   .max_head_rows = std::min(spec_.max_num_seqs, spec_.max_num_batched_tokens),
                   .max_model_len = spec_.max_model_len,
                   .block_size = spec_.block_size,
                   .epoch = epoch_}));
  }
  const auto named = [](std::string_view name, Error error) {
    return error.code == ErrorCode::timeout ? from_actor(name, std::move(error)) : error;
  };
  auto spawned = executor.get(spawn_timeout);
  if (!spawned.ok()) return named("executor", std::move(spawned).error());
  executor_ = *std::move(spawned);
  watch(executor_);
  for (std::size_t rank = 0; rank < workers.size(); ++rank) {
    auto handle = workers[rank].get(spawn_timeout);
    if (!handle.ok()) return named(fmt::format("worker-{}", rank), std::move(handle).error());
    watch(*handle);
    workers_.push_back(*std::move(handle));
  }
  return {};
}

Result<std::vector<WorkerReport>> Driver::load() {
  auto executor = executor_.call<&Executor::load>();
  std::vector<Future<WorkerReport>> loads;
  for (const auto& worker : workers_) loads.push_back(worker.call<&Worker::load>());
  std::vector<WorkerReport> reports;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    auto report = loads[i].get(load_timeout);
    if (!report.ok()) return from_actor(workers_[i].name(), std::move(report).error());
    reports.push_back(*report);
  }
  auto loaded = executor.get(load_timeout);
  if (!loaded.ok()) return from_actor(executor_.name(), std::move(loaded).error());
  return reports;
}

std::int64_t Driver::choose_kv_cache_blocks(const std::vector<WorkerReport>& reports) const {
  if (spec_.kv_cache_blocks > 0) return spec_.kv_cache_blocks;
  const std::int64_t blocks_per_sequence =
      (spec_.max_model_len + spec_.block_size - 1) / spec_.block_size;
  const std::int64_t useful = blocks_per_sequence * spec_.max_num_seqs;
  std::uint64_t bytes_per_block = 0;  // of all workers: they share this node's memory
  for (const WorkerReport& report : reports) bytes_per_block += report.kv_bytes_per_block;
  const std::uint64_t budget = available_memory_bytes() / 2;
  if (budget == 0 || bytes_per_block == 0) return useful;
  return std::min(useful, static_cast<std::int64_t>(budget / bytes_per_block));
}

Result<void> Driver::serve(std::int64_t kv_cache_blocks) {
  std::vector<Future<std::string>> starts;
  for (const auto& worker : workers_) {
    starts.push_back(worker.call<&Worker::start>(kv_cache_blocks));
  }
  std::string step_address;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    auto address = starts[i].get(start_timeout);
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
  log::info("serving {} on {} workers with {} KV blocks", spec_.model_path, workers_.size(),
            kv_cache_blocks);
  return {};
}

Result<void> Driver::submit(const std::vector<Request>& requests) {
  std::vector<std::uint64_t> ids;
  ids.reserve(requests.size());
  for (const Request& request : requests) ids.push_back(request.id);
  executor_.call<&Executor::submit>(requests).then(
      [ids = std::move(ids), self = context_.self<Driver>()](const Result<void>& taken) {
        // A death is told by the watch.
        if (taken.ok() || taken.error().code == ErrorCode::peer_died) return;
        self.call<&Driver::refuse>(ids, taken.error().message);
      });
  return {};
}

Result<void> Driver::drain() {
  executor_.call<&Executor::drain>().then([](const Result<void>& drained) {
    if (!drained.ok()) log::error("drain: {}", drained.error().message);
  });
  return {};
}

void Driver::report(EngineReport report) {
  stats_ = report.stats;
  events_.on_report(std::move(report));
}

void Driver::refuse(const std::vector<std::uint64_t>& requests, const std::string& why) {
  EngineReport report{.completions = {}, .dropped = {}, .stats = stats_};
  for (const std::uint64_t id : requests) {
    report.completions.push_back(troupe::refuse(id, "engine_busy", why));
  }
  events_.on_report(std::move(report));
}

}  // namespace troupe
