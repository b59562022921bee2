// Time of Scheduler::plan + apply with many sequences. Prints medians and 99th percentiles.
#include <cstdio>
#include <cstdlib>

#include "actors/scheduler/scheduler.hpp"
#include "tests/bench/scheduler/timing.hpp"

namespace troupe {
namespace {

void add(Scheduler& scheduler, std::uint64_t request, std::int32_t max_tokens) {
  SequenceGroupSpec spec;
  spec.request = request;
  spec.prompt.assign(100, 1);
  spec.sampling.max_tokens = max_tokens;
  spec.sampling.stop_token_ids = {4095, 4093};
  if (!scheduler.add(std::move(spec)).ok()) std::abort();
}

StepResult answer(const StepPlan& plan) {
  StepResult result;
  result.step = plan.step;
  result.epoch = plan.epoch;
  result.results.reserve(plan.steps.size());
  for (const SequenceStep& step : plan.steps) {
    if (step.sample) result.results.push_back({step.id, {1}, {}, 0, {}, false});
  }
  return result;
}

/// Sequences begin `max_tokens` apart, so that in a steady state they end and begin. With few
/// blocks some of them are swapped out.
void run(std::int32_t running, std::uint64_t waiting, std::int32_t max_tokens,
         bool few_blocks = false) {
  SchedulerConfig config;
  config.max_num_seqs = running;
  config.max_num_batched_tokens = 16384;
  config.kv_cache_blocks = running * (few_blocks ? 30 : 80);
  config.swap_blocks = few_blocks ? running * 80 : 0;
  config.max_model_len = 2048;
  auto made = Scheduler::make(config);
  if (!made.ok()) std::abort();
  Scheduler scheduler = std::move(made).value();
  std::uint64_t next = 0;
  std::vector<double> samples;
  for (int step = 0; step < 3000; ++step) {
    while (scheduler.live() < static_cast<std::size_t>(running) + waiting) {
      add(scheduler, next, max_tokens + static_cast<std::int32_t>(next % 64));
      ++next;
    }
    std::optional<StepPlan> plan;
    double us = bench::time_us([&] { plan = scheduler.plan(); });
    if (!plan) std::abort();
    StepResult result = answer(*plan);
    us += bench::time_us([&] {
      if (!scheduler.apply(std::move(result)).ok()) std::abort();
    });
    if (step >= 100) samples.push_back(us);
  }
  std::printf(
      "%5d running + %4d waiting, %4d tokens each, %4d swaps: plan + apply median %.1f us, p99 "
      "%.1f\n",
      running, static_cast<int>(waiting), max_tokens, static_cast<int>(scheduler.counters().swaps),
      bench::quantile(samples, 0.5), bench::quantile(samples, 0.99));
}

}  // namespace
}  // namespace troupe

int main() {
  troupe::run(256, 1000, 64);
  troupe::run(256, 1000, 1000);
  troupe::run(1024, 0, 64);
  troupe::run(1024, 0, 1000);
  troupe::run(1024, 0, 1000, true);
}
