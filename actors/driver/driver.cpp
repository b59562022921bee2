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
                                 spec_.expert_parallel_size, spec_.data_parallel_attention));
  router_.emplace(spec_.data_parallel_size);
  PhaseTimes times;
  if (events_.on_loading) {
    TROUPE_TRY(
        load_progress_,
        cluster_->spawn_local<LoadProgress>({.name = "start-load_progress"}, events_.on_loading)
            .get(board_timeout));
  }
  const std::int32_t domains = mesh_.step_domains();
  TROUPE_CHECK(place_domains(domains));
  // A call that the driver itself or an executor fails on ends the engine: what it was to do is not
  // done.
  on_failed_ = [on_down = events_.on_down](const std::string& actor, const Error& error) {
    ActorDown down;
    down.name = actor;
    down.cause = DownCause::exited;
    down.message = fmt::format("the {} failed: {}", actor, error.message);
    on_down(down);
  };
  end_because_.resize(static_cast<std::size_t>(domains));
  domains_.resize(static_cast<std::size_t>(domains));
  recoveries_.resize(static_cast<std::size_t>(domains));
  for (std::int32_t index = 0; index < domains; ++index) {
    const auto i = static_cast<std::size_t>(index);
    if (!has_places(groups_[i])) continue;
    domains_[i] = make_domain(index, groups_);
    recoveries_[i] = make_recovery(index);
  }
  for (std::int32_t index = 0; index < domains; ++index) {
    const auto& domain = domains_[static_cast<std::size_t>(index)];
    if (domain) TROUPE_CHECK(domain->finish_spawn(watcher(index)));
  }
  times.note("processes");
  TROUPE_TRY(info_, bring_up_all(times));
  log::info("the engine was ready after {}", times.text());
  count_serving();
  log::info(
      "serving {} on {} of {} replicas of {} workers with {} KV blocks each, and {} in host "
      "memory",
      spec_.model_path, there_ * mesh_.replicas_per_domain(), spec_.data_parallel_size,
      mesh_.world_size() / spec_.data_parallel_size, info_.kv_cache_blocks, info_.swap_blocks);
  since_ns_ = monotonic_ns();
  *serves_ = true;
  grow();
  return info_;
}

Result<void> Driver::place_domains(std::int32_t domains) {
  std::vector<NodeSpec> specs;
  for (const auto& node : cluster_->nodes()) specs.push_back(node.spec);
  bundles_ = worker_bundles(mesh_, specs);
  for (std::int32_t index = 0; index < domains; ++index) {
    auto placed = cluster_->create_placement_group(places_of(index));
    if (placed.ok()) {
      groups_.push_back(*std::move(placed));
      continue;
    }
    const bool may_come_later = spec_.elastic && index > 0 &&
                                (placed.error().code == ErrorCode::resource_exhausted ||
                                 placed.error().code == ErrorCode::unschedulable);
    if (!may_come_later) return std::move(placed).error();
    groups_.push_back(no_places(bundles_));
  }
  return {};
}

Result<EngineInfo> Driver::bring_up_all(PhaseTimes& times) {
  std::vector<Domain*> there;
  for (const auto& domain : domains_) {
    if (domain) there.push_back(domain.get());
  }
  for (Domain* domain : there) domain->begin_form();
  for (Domain* domain : there) TROUPE_CHECK(domain->begin_load());
  std::vector<WorkerReport> reports;
  for (Domain* domain : there) {
    TROUPE_TRY(const auto loaded, domain->finish_load());
    reports.insert(reports.end(), loaded.begin(), loaded.end());
  }
  times.note("models");
  EngineInfo info;
  TROUPE_CHECK(choose_blocks(reports, info));
  for (Domain* domain : there) domain->begin_serve(info);
  for (Domain* domain : there) TROUPE_CHECK(domain->finish_serve(info));
  times.note("caches and channels");
  return info;
}

Result<void> Driver::choose_blocks(const std::vector<WorkerReport>& reports,
                                   EngineInfo& info) const {
  std::vector<std::string> nodes = nodes_of_ranks(mesh_, groups_);
  std::erase(nodes, "");  // of ranks that are not there
  std::uint64_t bytes_per_block = 0;
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
  return {};
}

PlacementGroupOptions Driver::places_of(std::int32_t domain) const {
  const bool is_only = spec_.data_parallel_size == mesh_.replicas_per_domain();
  return {.name = is_only ? "workers" : fmt::format("workers-{}", domain),
          .bundles = bundles_,
          .moves = spec_.restart.max > 0};
}

std::unique_ptr<Domain> Driver::make_domain(std::int32_t domain,
                                            std::vector<PlacementGroup> groups) {
  // One that asks recovers, and so does not serve. Of those that all wait for places the first one
  // stays, and gets the places of the others.
  const auto may_drop = [this, domain] { return serving_ > 0 || first_there_ < domain; };
  auto made =
      std::make_unique<Domain>(*cluster_, spec_, mesh_, std::move(groups), domain, events_.on_wait,
                               spec_.elastic ? may_drop : std::function<bool()>());
  made->begin_spawn(context_.self<Driver>(), load_progress_, on_failed_, notes_);
  return made;
}

std::unique_ptr<Recovery> Driver::make_recovery(std::int32_t domain) {
  const auto self = context_.self<Driver>();
  return std::make_unique<Recovery>(
      *domains_.at(static_cast<std::size_t>(domain)),
      [self, on_failed = on_failed_, domain] {
        call_until_taken<&Driver::attempt_paused>(self, on_failed, domain);
      },
      [self, on_failed = on_failed_, domain] {
        call_until_taken<&Driver::attempt_ended>(self, on_failed, domain);
      });
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
  if (is_given_up_) return events_.on_down(down);  // the cause may be among the later ones
  // The end of one that was dropped.
  if (!is_there(domain) || !domains_[static_cast<std::size_t>(domain)]->has(down.id)) return;
  Recovery& recovery = *recoveries_[static_cast<std::size_t>(domain)];
  const bool must_begin = recovery.lost(down, RecoveryBudget::Clock::now());
  if (!down.restarts) return drop_or_give_up(domain, "", true);
  if (must_begin) begin_recovery(domain);
}

void Driver::hung(std::int32_t domain, std::uint32_t epoch, std::int32_t rank,
                  std::uint32_t incarnation, const std::string& why,
                  const std::vector<std::string>& ranks) {
  const auto index = static_cast<std::size_t>(domain);
  if (!is_there(domain)) return;
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
  count_serving();
}

void Driver::attempt_paused(std::int32_t domain) {
  if (is_given_up_ || !is_there(domain)) return;
  // By now the ends that follow from the first one are known.
  const auto untold = recoveries_.at(static_cast<std::size_t>(domain))->take_untold();
  if (untold && events_.on_recovery) events_.on_recovery(*untold);
}

void Driver::attempt_ended(std::int32_t domain) {
  Recovery& recovery = *recoveries_.at(static_cast<std::size_t>(domain));
  const Recovery::Next next = recovery.ended();
  if (is_given_up_) return;
  if (const auto why = end_because_[static_cast<std::size_t>(domain)]) return drop(domain, *why);
  switch (next) {
    case Recovery::Next::nothing:
      count_serving();
      return tell_if_complete(recovery);
    case Recovery::Next::again:
      return begin_recovery(domain);
    case Recovery::Next::give_up:
      return drop_or_give_up(
          domain, fmt::format("it could not be replaced: {}", recovery.error().message), false);
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
  if (losses.empty()) {  // of drained nodes, or of domains that never had one
    ActorDown down;
    down.name = context_.name();
    down.cause = DownCause::exited;
    down.message = "the engine ends";
    losses.push_back(std::move(down));
  }
  for (ActorDown& down : losses) {
    if (!why.empty()) down.message += "; " + why;
    events_.on_down(down);
  }
}

Result<void> Driver::submit(std::vector<Request> requests) {
  const SpanScope scope(&recorder_, SpanKind::route);
  if (!router_->has_open()) {
    const auto now = RequestLedger::Clock::now();
    for (Request& request : requests) {
      homeless_.push_back({.request = std::move(request), .since = now, .progress = {}});
    }
    return {};
  }
  std::vector<std::vector<Request>> parts(static_cast<std::size_t>(spec_.data_parallel_size));
  for (Request& request : requests) {
    const int replica = router_->choose(request);
    parts[static_cast<std::size_t>(replica)].push_back(std::move(request));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) continue;
    const auto [domain, replica] = place_of(static_cast<int>(i));
    domains_[domain]->submit(replica, std::move(parts[i]));
  }
  return {};
}

std::pair<std::size_t, std::int32_t> Driver::place_of(int replica) const {
  const int each = mesh_.replicas_per_domain();
  return {static_cast<std::size_t>(replica / each), replica % each};
}

Result<void> Driver::drain() {
  is_draining_ = true;
  for (auto& domain : domains_) {
    if (domain) domain->drain();
  }
  EngineReport dropped;
  std::erase_if(homeless_, [&](const RequestLedger::Unanswered& request) {
    if (!request.progress.updates().empty()) return false;
    dropped.dropped.push_back(request.request.id);
    return true;
  });
  if (!dropped.dropped.empty()) publish(std::move(dropped));
  return {};
}

std::int32_t Driver::ask_telemetry(bool all) {
  if (!events_.on_telemetry) return 0;
  std::int32_t asked = 1;
  for (std::size_t i = 0; i < domains_.size(); ++i) {
    if (!domains_[i] || recoveries_[i]->is_running())
      continue;  // its calls would wait for workers that load
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

void Driver::submit_again(std::int32_t domain, ActorId executor, std::uint32_t incarnation,
                          std::int32_t replica, std::vector<SubmittedRequest> requests) {
  if (!is_there(domain)) return;  // others have them
  Domain& of = *domains_[static_cast<std::size_t>(domain)];
  if (of.has(executor)) of.submit_again(incarnation, replica, std::move(requests));
}

void Driver::refuse(std::int32_t domain, const std::vector<std::uint64_t>& requests,
                    const std::string& code, const std::string& why) {
  if (!is_there(domain)) return;  // see distribute()
  EngineReport refusals;
  refusals.domain = domain;
  for (const std::uint64_t id : requests) {
    refusals.completions.push_back(troupe::refuse(id, code, why));
  }
  domains_.at(static_cast<std::size_t>(domain))->note_answers(refusals);
  publish(std::move(refusals));
}

void Driver::report(EngineReport report) {
  if (!is_there(report.domain)) return;  // others answer its requests
  const auto& domain = domains_.at(static_cast<std::size_t>(report.domain));
  // It may be of a dropped one's executor, delivered when a cut link is there again.
  if (!domain->has(report.executor)) return;
  domain->note_answers(report);
  if (report.resumed) {
    Recovery& recovery = *recoveries_.at(static_cast<std::size_t>(report.domain));
    recovery.note(*report.resumed);
    tell_if_complete(recovery);
  }
  domain->note_stats(report);
  const bool recovers = recoveries_[static_cast<std::size_t>(report.domain)]->is_running();
  if (report.overdue && !recovers) domain->look_into(*report.overdue);
  note_first_answer(report);
  publish(std::move(report));
}

void Driver::publish(EngineReport report) {
  for (const Completion& completion : report.completions) router_->finished(completion.id);
  for (const std::uint64_t id : report.dropped) router_->finished(id);
  EngineStats all = past_stats_;
  for (const auto& domain : domains_) {
    if (!domain) continue;
    all.add(domain->stats());
    report.kept_share = std::max(report.kept_share, domain->kept_share());
  }
  all.kv_use /= std::max(1, there_.load());
  report.stats = all;
  events_.on_report(std::move(report));
}

}  // namespace troupe
