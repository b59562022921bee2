#include "actors/driver/driver.hpp"

#include <chrono>
#include <string>
#include <utility>

#include "actors/driver/kv_budget.hpp"
#include "actors/driver/rank_placement.hpp"
#include "actors/executor/request_preprocessor.hpp"
#include "actors/worker/phase_times.hpp"
#include "runtime/base/log.hpp"

namespace troupe {

namespace {

constexpr auto board_timeout = std::chrono::seconds(10);

}  // namespace

Driver::Driver(ActorContext& context, Cluster* cluster, EngineSpec spec, EngineEvents events)
    : context_(context), cluster_(cluster), spec_(std::move(spec)), events_(std::move(events)) {}

Result<EngineInfo> Driver::start() {
  TROUPE_TRY(mesh_, Mesh::create({.data = spec_.data_parallel_size,
                                  .pipeline = spec_.pipeline_parallel_size,
                                  .context = spec_.context_parallel_size,
                                  .tensor = spec_.tensor_parallel_size},
                                 spec_.expert_parallel_size));
  router_.emplace(spec_.data_parallel_size);
  PhaseTimes times;
  ActorHandle<LoadProgress> load_progress;
  if (events_.on_loading) {
    TROUPE_TRY(
        load_progress,
        cluster_->spawn_local<LoadProgress>({.name = "start-load_progress"}, events_.on_loading)
            .get(board_timeout));
  }
  const std::int32_t domains = spec_.data_parallel_size / mesh_.replicas_per_domain();
  std::vector<NodeSpec> specs;
  for (const auto& node : cluster_->nodes()) specs.push_back(node.spec);
  TROUPE_TRY(const PlacementGroup workers,
             cluster_->create_placement_group({"workers", worker_bundles(mesh_, specs)}));
  const std::vector<std::string> nodes = nodes_of_ranks(mesh_, workers);
  for (std::int32_t index = 0; index < domains; ++index) {
    domains_.push_back(std::make_unique<Domain>(*cluster_, spec_, mesh_, workers, index));
    domains_.back()->begin_spawn(context_.self<Driver>(), load_progress);
  }
  for (auto& domain : domains_) TROUPE_CHECK(domain->finish_spawn(events_.on_down));
  times.note("processes");

  for (auto& domain : domains_) domain->begin_form();
  for (auto& domain : domains_) TROUPE_CHECK(domain->begin_load());
  EngineInfo info;
  std::uint64_t bytes_per_block = 0;
  std::vector<WorkerReport> reports;
  for (auto& domain : domains_) {
    TROUPE_TRY(const auto loaded, domain->finish_load());
    reports.insert(reports.end(), loaded.begin(), loaded.end());
  }
  times.note("models");
  for (const WorkerReport& report : reports) {
    info.weight_bytes += report.weight_bytes;
    bytes_per_block += report.kv_bytes_per_block;
  }
  info.kv_cache_blocks = spec_.device == DeviceKind::cpu
                             ? choose_host_kv_cache_blocks(spec_, reports, nodes)
                             : choose_device_kv_cache_blocks(spec_, reports);
  info.kv_bytes = bytes_per_block * static_cast<std::uint64_t>(info.kv_cache_blocks);
  if (info.kv_cache_blocks < 1 && spec_.device != DeviceKind::cpu) {
    return no_room_for_blocks(spec_, reports);
  }
  if (info.kv_cache_blocks < 1) {
    return fail(ErrorCode::resource_exhausted,
                "there is no memory for a single KV block of {} tokens: free memory, or split the "
                "model over more workers",
                spec_.block_size);
  }
  info.swap_blocks = choose_swap_blocks(spec_, reports, nodes, info.kv_cache_blocks);
  for (auto& domain : domains_) domain->begin_serve(info);
  for (auto& domain : domains_) TROUPE_CHECK(domain->finish_serve(info));
  times.note("caches and channels");
  log::info("the engine was ready after {}", times.text());
  log::info("serving {} on {} replicas of {} workers with {} KV blocks each, and {} in host memory",
            spec_.model_path, spec_.data_parallel_size,
            mesh_.world_size() / spec_.data_parallel_size, info.kv_cache_blocks, info.swap_blocks);
  since_ns_ = monotonic_ns();
  return info;
}

Result<void> Driver::submit(std::vector<Request> requests) {
  const SpanScope scope(&recorder_, SpanKind::route);
  std::vector<std::vector<Request>> parts(static_cast<std::size_t>(spec_.data_parallel_size));
  for (Request& request : requests) {
    const int replica = router_->choose(request);
    parts[static_cast<std::size_t>(replica)].push_back(std::move(request));
  }
  const auto per_domain = static_cast<std::size_t>(mesh_.replicas_per_domain());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) continue;
    domains_[i / per_domain]->submit(static_cast<std::int32_t>(i % per_domain), std::move(parts[i]),
                                     context_.self<Driver>());
  }
  return {};
}

Result<void> Driver::drain() {
  for (auto& domain : domains_) domain->drain();
  return {};
}

std::int32_t Driver::ask_telemetry(bool all) {
  if (!events_.on_telemetry) return 0;
  std::int32_t asked = 1;
  for (auto& domain : domains_) asked += domain->ask_telemetry(all, events_);
  ProcessTelemetry own;
  own.process = context_.name();
  own.role = ProcessRole::driver;
  own.since_ns = since_ns_;
  own.totals = recorder_.totals();
  if (all) {
    own.kept = recorder_.spans();
    own.traffic = tcp_traffic();
  }
  own.now_ns = monotonic_ns();
  events_.on_telemetry(all, std::move(own));
  return asked;
}

void Driver::submit_again(std::int32_t domain, std::int32_t replica,
                          std::vector<Request> requests) {
  domains_.at(static_cast<std::size_t>(domain))
      ->submit(replica, std::move(requests), context_.self<Driver>());
}

void Driver::refuse(std::int32_t domain, const std::vector<std::uint64_t>& requests,
                    const std::string& why) {
  EngineReport refusals;
  refusals.domain = domain;
  refusals.stats = domains_.at(static_cast<std::size_t>(domain))->stats();
  for (const std::uint64_t id : requests) {
    refusals.completions.push_back(troupe::refuse(id, "internal_error", why));
  }
  report(std::move(refusals));
}

void Driver::report(EngineReport report) {
  domains_.at(static_cast<std::size_t>(report.domain))->set_stats(report.stats);
  for (const Completion& completion : report.completions) router_->finished(completion.id);
  for (const std::uint64_t id : report.dropped) router_->finished(id);
  EngineStats all;
  for (const auto& domain : domains_) all.add(domain->stats());
  all.kv_use /= static_cast<double>(domains_.size());
  report.stats = all;
  events_.on_report(std::move(report));
}

}  // namespace troupe
