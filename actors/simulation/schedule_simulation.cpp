#include "actors/simulation/schedule_simulation.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace troupe {
namespace {

constexpr std::int32_t stop_token = std::numeric_limits<std::int32_t>::max();

/// Returns neither `stop_token` nor a negative number. The mixing steps are SplitMix64's.
std::int32_t token_of(std::uint64_t text, std::int32_t position) {
  std::uint64_t bits = text * 0x9E3779B97F4A7C15ULL + static_cast<std::uint64_t>(position);
  bits = (bits ^ (bits >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  bits = (bits ^ (bits >> 27U)) * 0x94D049BB133111EBULL;
  return static_cast<std::int32_t>((bits ^ (bits >> 31U)) % stop_token);
}

/// Numbers of the texts: even for requests, odd for prefix families.
std::uint64_t own_text(std::size_t index) { return 2 * std::uint64_t{index}; }
std::uint64_t family_text(std::int32_t family) {
  return 2 * static_cast<std::uint64_t>(family) + 1;
}

SequenceGroupSpec spec_of(const SimulatedRequest& request, std::size_t index) {
  SequenceGroupSpec spec;
  spec.request = index;
  for (std::int32_t p = 0; p < request.prompt_tokens; ++p) {
    const bool shared = request.prefix_family >= 0 && p < request.shared_tokens;
    spec.prompt.push_back(
        token_of(shared ? family_text(request.prefix_family) : own_text(index), p));
  }
  spec.sampling.seed = index;  // the plan identifies the request by it
  spec.sampling.max_tokens = request.max_tokens;
  spec.sampling.stop_token_ids = {stop_token};
  spec.priority = request.priority;
  spec.deadline_us = request.deadline_us;
  return spec;
}

Result<void> check(const StepCost& cost, std::span<const SimulatedRequest> trace) {
  const std::pair<const char*, double> costs[] = {{"us_per_step", cost.us_per_step},
                                                  {"us_per_token", cost.us_per_token},
                                                  {"us_per_kv_token", cost.us_per_kv_token},
                                                  {"us_per_plan", cost.us_per_plan}};
  for (const auto& [name, us] : costs) {
    if (!(us >= 0.0 && us <= 1e6)) {
      return fail(ErrorCode::invalid_argument, "{} is {}, it must be from 0 to 1e6", name, us);
    }
  }
  if (cost.stages < 1 || cost.stages > 1024) {
    return fail(ErrorCode::invalid_argument, "stages is {}, it must be from 1 to 1024",
                cost.stages);
  }
  std::int64_t latest_us = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const SimulatedRequest& request = trace[i];
    if (request.arrival_us < latest_us) {
      return fail(ErrorCode::invalid_argument,
                  "request {} comes at {} us, after one that comes at {} us", i, request.arrival_us,
                  latest_us);
    }
    latest_us = request.arrival_us;
    if (request.output_tokens < 1 || request.output_tokens > request.max_tokens) {
      return fail(ErrorCode::invalid_argument, "request {} has {} tokens of answer, max_tokens {}",
                  i, request.output_tokens, request.max_tokens);
    }
    if (request.shared_tokens < 0 || request.shared_tokens > request.prompt_tokens) {
      return fail(ErrorCode::invalid_argument, "request {} shares {} of {} prompt tokens", i,
                  request.shared_tokens, request.prompt_tokens);
    }
  }
  return {};
}

/// Simulates the workers: when they are busy, and what they sample.
class SimulatedWorkers {
 public:
  SimulatedWorkers(const SchedulerConfig& config, const StepCost& cost,
                   std::span<const SimulatedRequest> trace)
      : config_(config),
        cost_(cost),
        trace_(trace),
        free_us_(static_cast<std::size_t>(cost.stages), 0) {}

  struct Step {
    std::int64_t begin_us = 0;
    std::int64_t end_us = 0;
    std::int64_t tokens = 0;
    StepResult result;
  };

  Step run(const StepPlan& plan, std::int64_t now_us) {
    Step step;
    step.result.step = plan.step;
    step.result.epoch = plan.epoch;
    for (const NewSequence& started : plan.started) {
      request_of_[started.id] = static_cast<std::size_t>(started.sampling.seed);
    }
    double us = cost_.us_per_step;
    for (const SequenceStep& share : plan.steps) {
      us += share.tokens * cost_.us_per_token + positions_read(share) * cost_.us_per_kv_token;
      step.tokens += share.tokens;
      if (share.sample) step.result.results.push_back(sample(share));
    }
    const std::int64_t plan_us = std::llround(cost_.us_per_plan);
    const std::int64_t stage_us = std::llround(us / cost_.stages);
    step.begin_us = std::max(now_us + plan_us, free_us_.front());
    step.end_us = step.begin_us;
    for (std::int64_t& free_us : free_us_) {
      free_us = step.end_us = std::max(step.end_us, free_us) + stage_us;
    }
    step.result.model_us = static_cast<std::uint32_t>(std::min<std::int64_t>(
        step.end_us - step.begin_us, std::numeric_limits<std::uint32_t>::max()));
    return step;
  }

  std::size_t request_of(SequenceId id) const { return request_of_.at(id); }

 private:
  double positions_read(const SequenceStep& share) const {
    const std::int64_t end = share.first_position + share.tokens;
    double read = 0.0;
    for (const std::int32_t window : config_.windows) {
      const std::int64_t seen = std::int64_t{window} + share.tokens - 1;
      read += static_cast<double>(window == 0 ? end : std::min(end, seen));
    }
    return read / static_cast<double>(config_.windows.size());
  }

  /// The token at `position` in the text of a request.
  std::int32_t answer_at(std::size_t index, std::int32_t position) const {
    const SimulatedRequest& request = trace_[index];
    const bool last = position == request.prompt_tokens + request.output_tokens - 1;
    if (last && request.output_tokens < request.max_tokens) return stop_token;
    return token_of(own_text(index), position);
  }

  SequenceResult sample(const SequenceStep& share) const {
    const std::size_t index = request_of_.at(share.id);
    SequenceResult row;
    row.id = share.id;
    auto position =
        share.first_position + share.tokens - static_cast<std::int32_t>(share.drafts.size());
    row.tokens.push_back(answer_at(index, position));
    for (const std::int32_t draft : share.drafts) {
      if (draft != row.tokens.back()) break;
      row.tokens.push_back(answer_at(index, ++position));
    }
    return row;
  }

  const SchedulerConfig& config_;
  const StepCost& cost_;
  std::span<const SimulatedRequest> trace_;
  std::vector<std::int64_t> free_us_;  ///< [stages], when each has finished all its work
  std::unordered_map<SequenceId, std::size_t> request_of_;
};

/// One trace, from the first arrival to the last end. RequestOutcome::alone_us is not filled in.
class Simulation {
 public:
  Simulation(Scheduler scheduler, const SchedulerConfig& config, const StepCost& cost,
             std::span<const SimulatedRequest> trace)
      : scheduler_(std::move(scheduler)), workers_(config, cost, trace), trace_(trace) {
    outcome_.requests.resize(trace.size());
    begun_.resize(trace.size(), false);
  }

  Result<ScheduleOutcome> run() {
    while (ended_ < trace_.size()) {
      TROUPE_CHECK(take_arrivals());
      while (auto plan = scheduler_.plan(now_us_)) start(*plan);
      const bool comes = arrived_ < trace_.size();
      if (in_flight_.empty() && !comes) {
        return fail(ErrorCode::internal, "{} requests are live but nothing is planned",
                    scheduler_.live());
      }
      constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
      const std::int64_t result_us = in_flight_.empty() ? never : in_flight_.front().end_us;
      now_us_ = std::min(result_us, comes ? trace_[arrived_].arrival_us : never);
      if (result_us == now_us_) TROUPE_CHECK(finish());
    }
    outcome_.makespan_us = now_us_;
    outcome_.counters = scheduler_.counters();
    return std::move(outcome_);
  }

 private:
  Result<void> take_arrivals() {
    for (; arrived_ < trace_.size() && trace_[arrived_].arrival_us <= now_us_; ++arrived_) {
      const auto added = scheduler_.add(spec_of(trace_[arrived_], arrived_));
      if (!added.ok()) {
        return fail(added.error().code, "request {} of the trace: {}", arrived_,
                    added.error().message);
      }
    }
    return {};
  }

  void start(const StepPlan& plan) {
    in_flight_.push_back(workers_.run(plan, now_us_));
    const SimulatedWorkers::Step& step = in_flight_.back();
    for (const NewSequence& started : plan.started) {
      const std::size_t index = workers_.request_of(started.id);
      if (!begun_[index]) outcome_.requests[index].begin_us = step.begin_us;
      begun_[index] = true;
    }
    ++outcome_.steps;
    outcome_.computed_tokens += step.tokens;
  }

  /// Finishes the oldest step in flight.
  Result<void> finish() {
    StepResult result = std::move(in_flight_.front().result);
    in_flight_.pop_front();
    TROUPE_TRY(const auto updates, scheduler_.apply(std::move(result)));
    for (const SequenceUpdate& update : updates) {
      RequestOutcome& request = outcome_.requests[static_cast<std::size_t>(update.request)];
      if (request.tokens == 0) request.first_token_us = now_us_;
      request.tokens += static_cast<std::int32_t>(update.tokens.size());
      if (!update.end) continue;
      request.end_us = now_us_;
      ++ended_;
    }
    return {};
  }

  Scheduler scheduler_;
  SimulatedWorkers workers_;
  std::span<const SimulatedRequest> trace_;
  std::int64_t now_us_ = 0;
  std::size_t arrived_ = 0;
  std::size_t ended_ = 0;
  std::vector<bool> begun_;                       ///< [requests], true once in a step
  std::deque<SimulatedWorkers::Step> in_flight_;  ///< oldest first
  ScheduleOutcome outcome_;
};

Result<ScheduleOutcome> run_once(const SchedulerConfig& config, const StepCost& cost,
                                 std::span<const SimulatedRequest> trace) {
  TROUPE_TRY(auto scheduler, Scheduler::make(config));
  return Simulation(std::move(scheduler), config, cost, trace).run();
}

/// Fills in RequestOutcome::alone_us, simulating each shape once.
Result<void> fill_in_alone(SchedulerConfig config, const StepCost& cost,
                           std::span<const SimulatedRequest> trace, ScheduleOutcome& outcome) {
  config.prefix_caching = false;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::int64_t> known;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    SimulatedRequest request = trace[i];
    const auto [at, fresh] =
        known.try_emplace({request.prompt_tokens, request.max_tokens, request.output_tokens}, 0);
    if (fresh) {
      request.arrival_us = 0;
      TROUPE_TRY(const auto alone, run_once(config, cost, {&request, 1}));
      at->second = alone.makespan_us;
    }
    outcome.requests[i].alone_us = at->second;
  }
  return {};
}

}  // namespace

Result<ScheduleOutcome> simulate_schedule(const SchedulerConfig& config, const StepCost& cost,
                                          std::span<const SimulatedRequest> trace) {
  TROUPE_CHECK(check(cost, trace));
  TROUPE_TRY(auto outcome, run_once(config, cost, trace));
  TROUPE_CHECK(fill_in_alone(config, cost, trace, outcome));
  return outcome;
}

}  // namespace troupe
