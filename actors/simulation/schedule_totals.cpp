#include "actors/simulation/schedule_totals.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <utility>

namespace troupe {

TimeSpread spread_of(std::vector<std::int64_t> times_us) {
  if (times_us.empty()) return {};
  std::sort(times_us.begin(), times_us.end());
  const auto count = static_cast<double>(times_us.size());
  const auto at = [&](double share) {
    return times_us[static_cast<std::size_t>(std::ceil(share * count)) - 1];
  };
  const auto sum = std::accumulate(times_us.begin(), times_us.end(), std::int64_t{0});
  return {static_cast<double>(sum) / count, at(0.50), at(0.95), at(0.99)};
}

double jain_index(std::span<const double> values) {
  double sum = 0.0;
  double squares = 0.0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  return squares > 0.0 ? sum * sum / (static_cast<double>(values.size()) * squares) : 1.0;
}

ScheduleTotals totals_of(std::span<const SimulatedRequest> trace, const ScheduleOutcome& outcome) {
  assert(trace.size() == outcome.requests.size());
  ScheduleTotals totals;
  std::vector<std::int64_t> queueing;
  std::vector<std::int64_t> first_token;
  std::vector<std::int64_t> end_to_end;
  std::vector<double> slowdowns;
  std::int64_t good = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const SimulatedRequest& request = trace[i];
    const RequestOutcome& became = outcome.requests[i];
    const std::int64_t taken_us = became.end_us - request.arrival_us;
    queueing.push_back(became.begin_us - request.arrival_us);
    first_token.push_back(became.first_token_us - request.arrival_us);
    end_to_end.push_back(taken_us);
    slowdowns.push_back(became.alone_us == 0
                            ? 1.0
                            : static_cast<double>(taken_us) / static_cast<double>(became.alone_us));
    totals.worst_slowdown = std::max(totals.worst_slowdown, slowdowns.back());
    const bool late = request.deadline_us && became.end_us > *request.deadline_us;
    const bool late_first =
        request.first_token_due_us && became.first_token_us > *request.first_token_due_us;
    totals.deadline_misses += late ? 1 : 0;
    good += late || late_first ? 0 : 1;
    totals.output_tokens += became.tokens;
  }
  totals.makespan_s = static_cast<double>(outcome.makespan_us) * 1e-6;
  if (outcome.makespan_us > 0) {
    totals.output_tokens_per_s = static_cast<double>(totals.output_tokens) / totals.makespan_s;
  }
  totals.steps = outcome.steps;
  totals.computed_tokens = outcome.computed_tokens;
  totals.queueing = spread_of(std::move(queueing));
  totals.first_token = spread_of(std::move(first_token));
  totals.end_to_end = spread_of(std::move(end_to_end));
  if (!trace.empty()) {
    totals.goodput = static_cast<double>(good) / static_cast<double>(trace.size());
  }
  totals.fairness = jain_index(slowdowns);
  totals.prefix_tokens = outcome.counters.prefix_tokens;
  totals.preemptions = outcome.counters.preemptions;
  return totals;
}

}  // namespace troupe
