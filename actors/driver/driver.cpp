#include "actors/driver/driver.hpp"

#include <algorithm>
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
/// On GPUs a rank's calls are enqueued, so that a step which is only slow looks like one that
/// hangs: it has this long at least. Sooner than who waits for the GPU gives up (30 s).
constexpr double device_patience_s = 20;

}  // namespace

Driver::Driver(ActorContext& context, Cluster* cluster, EngineSpec spec, EngineEvents events)
    : context_(context),
      cluster_(cluster),
      spec_(std::move(spec)),
      events_(std::move(events)),
      budget_(spec_.restart) {}

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
  std::vector<PlacementGroup> workers;
  for (std::int32_t index = 0; index < domains; ++index) {
    TROUPE_TRY(workers.emplace_back(),
               cluster_->create_placement_group(
                   {.name = domains == 1 ? "workers" : fmt::format("workers-{}", index),
                    .bundles = worker_bundles(mesh_, specs),
                    .moves = spec_.restart.max > 0}));
  }
  const std::vector<std::string> nodes = nodes_of_ranks(mesh_, workers);
  const auto self = context_.self<Driver>();
  // A call that the driver itself or an executor fails on ends the engine: what it was to do is not
  // done.
  const OnCallFailed on_failed = [on_down = events_.on_down](const std::string& actor,
                                                             const Error& error) {
    ActorDown down;
    down.name = actor;
    down.cause = DownCause::exited;
    down.message = fmt::format("the {} failed: {}", actor, error.message);
    on_down(down);
  };
  for (std::int32_t index = 0; index < domains; ++index) {
    domains_.push_back(
        std::make_unique<Domain>(*cluster_, spec_, mesh_, workers, index, events_.on_wait));
    domains_.back()->begin_spawn(self, load_progress, on_failed, notes_);
    recoveries_.push_back(std::make_unique<Recovery>(
        *domains_.back(),
        [self, on_failed, index] {
          call_until_taken<&Driver::attempt_paused>(self, on_failed, index);
        },
        [self, on_failed, index] {
          call_until_taken<&Driver::attempt_ended>(self, on_failed, index);
        }));
  }
  for (std::int32_t index = 0; index < domains; ++index) {
    TROUPE_CHECK(domains_[static_cast<std::size_t>(index)]->finish_spawn(watcher(index)));
  }
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
  *serves_ = true;
  return info;
}

DownCallback Driver::watcher(std::int32_t domain) {
  const bool recovers = spec_.restart.max > 0;
  return [serves = serves_, on_down = events_.on_down, driver = context_.self<Driver>(),
          notes = notes_, recovers, domain](const ActorDown& reported) {
    const ActorDown down = notes->completed(reported);
    if (*serves && recovers) {
      call_until_taken<&Driver::lost>(
          driver, [on_down, down](const std::string&, const Error&) { on_down(down); }, domain,
          down);
    } else {
      on_down(down);
    }
  };
}

void Driver::lost(std::int32_t domain, const ActorDown& down) {
  Recovery& recovery = *recoveries_.at(static_cast<std::size_t>(domain));
  if (is_given_up_) return events_.on_down(down);  // the cause may be among the later ones
  const bool must_begin = recovery.lost(down, RecoveryBudget::Clock::now());
  if (!down.restarts) return give_up(recovery.losses(), "");
  if (must_begin) begin_recovery(domain);
}

void Driver::hung(std::int32_t domain, std::uint32_t epoch, std::int32_t rank,
                  std::uint32_t incarnation, const std::string& why,
                  const std::vector<std::string>& ranks) {
  const auto index = static_cast<std::size_t>(domain);
  Recovery& recovery = *recoveries_.at(index);
  // The epoch that it was found in is over.
  if (is_given_up_ || recovery.is_running() || domains_[index]->epoch() != epoch) return;
  if (domains_[index]->kill_hung(rank, incarnation, why)) recovery.note_hang(ranks);
}

void Driver::begin_recovery(std::int32_t domain) {
  Recovery& recovery = *recoveries_.at(static_cast<std::size_t>(domain));
  if (!budget_.take(RecoveryBudget::Clock::now())) {
    return give_up(recovery.losses(),
                   fmt::format("that is one recovery more than restart.max ({}) allows within {} "
                               "minutes",
                               spec_.restart.max, spec_.restart.per_minutes));
  }
  recovery.begin();
}

void Driver::attempt_paused(std::int32_t domain) {
  if (is_given_up_) return;
  // By now the ends that follow from the first one are known.
  const auto untold = recoveries_.at(static_cast<std::size_t>(domain))->take_untold();
  if (untold && events_.on_recovery) events_.on_recovery(*untold);
}

void Driver::attempt_ended(std::int32_t domain) {
  Recovery& recovery = *recoveries_.at(static_cast<std::size_t>(domain));
  const Recovery::Next next = recovery.ended();
  if (is_given_up_) return;
  switch (next) {
    case Recovery::Next::nothing:
      return tell_if_complete(recovery);
    case Recovery::Next::again:
      return begin_recovery(domain);
    case Recovery::Next::give_up:
      return give_up(recovery.losses(),
                     fmt::format("it could not be replaced: {}", recovery.error().message));
  }
}

void Driver::tell_if_complete(Recovery& recovery) {
  const auto complete = recovery.take_complete();
  if (!complete) return;
  log::info("recovered in {:.2f} s: epoch {}, {} sequences are computed anew", *complete->seconds,
            complete->epoch, complete->sequences);
  if (events_.on_recovery) events_.on_recovery(*complete);
}

void Driver::give_up(std::vector<ActorDown> losses, const std::string& why) {
  is_given_up_ = true;
  for (ActorDown& down : losses) {
    if (!why.empty()) down.message += "; " + why;
    events_.on_down(down);
  }
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
    domains_[i / per_domain]->submit(static_cast<std::int32_t>(i % per_domain),
                                     std::move(parts[i]));
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
  for (std::size_t i = 0; i < domains_.size(); ++i) {
    if (recoveries_[i]->is_running()) continue;  // its calls would wait for workers that load
    asked += domains_[i]->ask_telemetry(all, events_);
  }
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

void Driver::submit_again(std::int32_t domain, std::uint32_t incarnation, std::int32_t replica,
                          std::vector<SubmittedRequest> requests) {
  domains_.at(static_cast<std::size_t>(domain))
      ->submit_again(incarnation, replica, std::move(requests));
}

void Driver::refuse(std::int32_t domain, const std::vector<std::uint64_t>& requests,
                    const std::string& code, const std::string& why) {
  EngineReport refusals;
  refusals.domain = domain;
  for (const std::uint64_t id : requests) {
    refusals.completions.push_back(troupe::refuse(id, code, why));
  }
  pass_on(std::move(refusals));
}

void Driver::report(EngineReport report) {
  if (report.resumed) {
    Recovery& recovery = *recoveries_.at(static_cast<std::size_t>(report.domain));
    recovery.note(*report.resumed);
    tell_if_complete(recovery);
  }
  const auto& domain = domains_.at(static_cast<std::size_t>(report.domain));
  domain->note_stats(report);
  const bool on_cpus = spec_.device == DeviceKind::cpu;
  if (report.overdue && (on_cpus || report.overdue->seconds >= device_patience_s) &&
      !recoveries_[static_cast<std::size_t>(report.domain)]->is_running()) {
    domain->look_into(*report.overdue);
  }
  pass_on(std::move(report));
}

void Driver::pass_on(EngineReport report) {
  domains_.at(static_cast<std::size_t>(report.domain))->note_answers(report);
  for (const Completion& completion : report.completions) router_->finished(completion.id);
  for (const std::uint64_t id : report.dropped) router_->finished(id);
  EngineStats all;
  for (const auto& domain : domains_) all.add(domain->stats());
  all.kv_use /= static_cast<double>(domains_.size());
  report.stats = all;
  for (const auto& domain : domains_) {
    report.kept_share = std::max(report.kept_share, domain->kept_share());
  }
  events_.on_report(std::move(report));
}

}  // namespace troupe
