#include "actors/simulation/schedule_totals.hpp"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

namespace troupe {

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
  std::vector<double> queueing_us;
  std::vector<double> first_token_us;
  std::vector<double> end_to_end_us;
  std::vector<double> slowdowns;
  std::int64_t good = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const SimulatedRequest& request = trace[i];
    const RequestOutcome& became = outcome.requests[i];
    const auto taken_us = static_cast<double>(became.end_us - request.arrival_us);
    const auto alone_us = static_cast<double>(became.alone_us);
    queueing_us.push_back(static_cast<double>(became.begin_us - request.arrival_us));
    first_token_us.push_back(static_cast<double>(became.first_token_us - request.arrival_us));
    end_to_end_us.push_back(taken_us);
    slowdowns.push_back(became.alone_us == 0 ? 1.0 : taken_us / alone_us);
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
  totals.queueing_us = distribution_of(std::move(queueing_us));
  totals.first_token_us = distribution_of(std::move(first_token_us));
  totals.end_to_end_us = distribution_of(std::move(end_to_end_us));
  if (!trace.empty()) {
    totals.goodput = static_cast<double>(good) / static_cast<double>(trace.size());
  }
  totals.fairness = jain_index(slowdowns);
  totals.prefix_tokens = outcome.counters.prefix_tokens;
  totals.preemptions = outcome.counters.preemptions;
  totals.swaps = outcome.counters.swaps;
  return totals;
}

}  // namespace troupe
