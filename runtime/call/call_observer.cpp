#include "runtime/call/call_observer.hpp"

#include <algorithm>
#include <random>

#include <fmt/format.h>

namespace troupe {
namespace {

MetricFamily family(std::string name, std::string help, MetricKind kind) {
  return {std::move(name), std::move(help), kind, {}, {}};
}

double in_double(const std::atomic<std::uint64_t>& value) {
  return static_cast<double>(value.load(std::memory_order_relaxed));
}

}  // namespace

ActorLoad::~ActorLoad() {
  const std::lock_guard lock(observer_->mutex_);
  if (after_ != nullptr) after_->before_ = before_;
  (before_ != nullptr ? before_->after_ : observer_->loads_) = after_;
}

std::int64_t ActorLoad::on_delivered() noexcept {
  add_alone(delivered_, 1);
  return observer_->timeline_.time();
}

ActorLoad::Running ActorLoad::begin(std::uint16_t method, std::uint64_t call,
                                    std::int64_t queued_ns) noexcept {
  const Running running{call, method, queued_ns, observer_->timeline_.time()};
  if (running.begin_ns != 0) CallTimeline::set_caller(address_->id);
  return running;
}

void ActorLoad::on_ended(const Running& running) {
  const std::size_t method = std::min<std::size_t>(running.method, type_.methods.size());
  type_.served[method].fetch_add(1, std::memory_order_relaxed);
  ended_.fetch_add(1, std::memory_order_relaxed);
  if (running.begin_ns == 0) return;
  CallTimeline::set_caller(0);
  observer_->timeline_.note_run(running.call, *address_, method_of(running), running.queued_ns,
                                running.begin_ns);
}

std::int64_t ActorLoad::begin_part() noexcept {
  const std::int64_t now = observer_->timeline_.time();
  if (now != 0) CallTimeline::set_caller(address_->id);
  return now;
}

void ActorLoad::end_part(const Running& running, std::int64_t begin_ns, bool is_resumed) {
  if (begin_ns == 0) return;
  CallTimeline::set_caller(0);
  observer_->timeline_.note_run(running.call, *address_, method_of(running),
                                is_resumed ? 0 : running.queued_ns, begin_ns, is_resumed);
}

std::uint64_t CallObserver::first_call() {
  std::random_device device;
  const std::uint64_t high = device(), low = device();
  return (high << 32 | low) >> 1 | 1;
}

void CallObserver::find_made(Made& made, const ActorAddress& actor, std::uint16_t method) {
  const std::lock_guard lock(mutex_);
  auto& [key, count] = *made_of_.try_emplace({actor.type, method}).first;
  made = {&key, &count};
}

void CallObserver::on_failed(std::string_view type, std::string_view method, ErrorCode code) {
  metrics_
      .counter("troupe_calls_failed_total", "Calls that failed, counted where they were made.",
               {{"actor_type", std::string(type)},
                {"method", std::string(method)},
                {"code", std::string(to_string(code))}})
      .add();
}

std::shared_ptr<ActorLoad> CallObserver::add_actor(const SharedAddress& actor,
                                                   std::span<const std::string_view> methods) {
  const std::lock_guard lock(mutex_);
  auto type = types_.find(actor->type);
  if (type == types_.end()) {
    ActorLoad::Type made{{methods.begin(), methods.end()},
                         std::make_unique<std::atomic<std::uint64_t>[]>(methods.size() + 1)};
    type = types_.emplace(actor->type, std::move(made)).first;
  }
  auto load =
      std::make_shared<ActorLoad>(ActorLoad::Private(), shared_from_this(), actor, type->second);
  load->after_ = loads_;
  if (loads_ != nullptr) loads_->before_ = load.get();
  loads_ = load.get();
  return load;
}

std::vector<ActorLoadState> CallObserver::loads() const {
  const std::lock_guard lock(mutex_);
  std::vector<ActorLoadState> states;
  for (const ActorLoad* load = loads_; load != nullptr; load = load->after_) {
    const std::uint64_t ended = load->ended_.load(std::memory_order_relaxed);
    const std::uint64_t delivered = load->delivered_.load(std::memory_order_relaxed);
    states.push_back({load->address_->id, ended, delivered - std::min(delivered, ended)});
  }
  // Of an actor that was made here again while its last incarnation ends, the latest.
  std::ranges::stable_sort(states, {}, &ActorLoadState::actor);
  const auto again = std::ranges::unique(states, {}, &ActorLoadState::actor);
  states.erase(again.begin(), again.end());
  return states;
}

void CallObserver::add_runtime_metrics(MetricsSnapshot& all) const {
  const auto single = [&](const char* name, const char* help, MetricKind kind, double value) {
    all.push_back(family(name, help, kind));
    all.back().series.push_back({{}, {value}});
  };
  single("troupe_credits_in_use", "Calls that are unanswered, or whose callbacks are due.",
         MetricKind::gauge, std::max(0.0, in_double(credits_taken_) - in_double(credits_given_)));
  single("troupe_credit_waits_total", "Calls that had to wait for a credit.", MetricKind::counter,
         in_double(credit_waits_));
  single("troupe_link_sent_bytes_total", "Bytes of calls and answers sent to other processes.",
         MetricKind::counter, in_double(calls_sent_) + in_double(answers_sent_));
  single("troupe_link_received_bytes_total",
         "Bytes of calls and answers received from other processes.", MetricKind::counter,
         in_double(received_));

  const std::lock_guard lock(mutex_);
  all.push_back(family("troupe_calls_made_total", "Calls made.", MetricKind::counter));
  for (const auto& [key, count] : made_of_) {
    const auto type = types_.find(key.first);
    const bool is_known = type != types_.end() && key.second < type->second.methods.size();
    all.back().series.push_back(
        {{{"actor_type", key.first},
          {"method", is_known ? type->second.methods[key.second] : fmt::format("#{}", key.second)}},
         {in_double(count)}});
  }
  all.push_back(
      family("troupe_calls_served_total", "Calls that actors have run.", MetricKind::counter));
  for (const auto& [name, type] : types_) {
    for (std::size_t i = 0; i <= type.methods.size(); ++i) {
      const double count = in_double(type.served[i]);
      if (count == 0) continue;
      const std::string method = i < type.methods.size() ? type.methods[i] : "unknown";
      all.back().series.push_back({{{"actor_type", name}, {"method", method}}, {count}});
    }
  }
  struct OfType {
    double actors = 0, queued = 0;
  };
  std::map<std::string, OfType> of_type;
  for (const ActorLoad* load = loads_; load != nullptr; load = load->after_) {
    if (load->address_->type.starts_with("troupe.")) continue;  // the runtime's own
    OfType& sum = of_type[load->address_->type];
    const auto ended = in_double(load->ended_);
    sum.actors += 1;
    sum.queued += std::max(0.0, in_double(load->delivered_) - ended);
  }
  all.push_back(family("troupe_actors", "Actors that live.", MetricKind::gauge));
  for (const auto& [name, sum] : of_type) {
    all.back().series.push_back({{{"actor_type", name}}, {sum.actors}});
  }
  all.push_back(family("troupe_mailbox_calls", "Calls in the mailboxes of actors, or running.",
                       MetricKind::gauge));
  for (const auto& [name, sum] : of_type) {
    all.back().series.push_back({{{"actor_type", name}}, {sum.queued}});
  }
}

ProcessMetrics CallObserver::snapshot() const {
  ProcessMetrics process{metrics_.snapshot(), {}};
  add_runtime_metrics(process.metrics);
  const std::lock_guard lock(mutex_);
  for (const auto& [name, type] : types_) process.methods.emplace(name, type.methods);
  return process;
}

}  // namespace troupe
