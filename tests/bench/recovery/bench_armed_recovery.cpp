// Instructions of the executor's and the driver's part of a step, with recovery armed
// (restart.max) and without: the executor then keeps the progress of all requests and reports it,
// and the driver stores it. Workers do the same in both cases. It is to be run under callgrind,
// which counts the two functions of C:
//
//   for armed in 0 1; do
//     valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect=plan_step
//       --toggle-collect=take_answers bench_armed_recovery $armed SEQUENCES STEPS STEPS_PER_REPORT
//   done
//
// STEPS_PER_REPORT: steps in the 200 ms between two reports.

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "actors/api/report.hpp"
#include "actors/driver/request_ledger.hpp"
#include "actors/executor/request_tracker.hpp"
#include "actors/scheduler/step_domain.hpp"
#include "actors/step/step_codec.hpp"
#include "runtime/call/codec.hpp"

namespace troupe {
namespace {

constexpr std::int32_t prompt_tokens = 64;
using Clock = RequestTracker::Clock;

template <class T>
T must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(1);
}

/// What an executor and the driver have of a replica that decodes.
struct Replica {
  Replica(bool armed, int sequences, int steps)
      : is_armed(armed),
        scheduler(must(
            Scheduler::make({.max_num_seqs = sequences,
                             .max_num_batched_tokens = sequences * prompt_tokens,
                             .max_model_len = prompt_tokens + steps + 1,
                             .kv_cache_blocks = sequences * ((prompt_tokens + steps) / 16 + 2)}))),
        tracker(nullptr, armed) {
    for (int i = 1; i <= sequences; ++i) {
      PreparedRequest request;
      request.id = static_cast<std::uint64_t>(i);
      request.prompt.assign(prompt_tokens, i);
      request.sampling.max_tokens = steps + 1;
      Request asked;
      asked.id = request.id;
      asked.prompt_ids = request.prompt;
      if (armed) ledger.add(0, {asked}, {});
      const auto added = scheduler.add(tracker.begin(0, std::move(request), {}));
      if (!added.ok()) std::exit(1);
    }
  }

  bool is_armed;
  Scheduler scheduler;
  RequestTracker tracker;
  RequestLedger ledger;
  StepEncoder encoder;
  EngineReport report;
  std::uint64_t tokens = 0;
  std::size_t bytes = 0;  ///< sent, so that nothing is left out
};

/// A correct worker's answer.
std::vector<std::byte> answer_to(const StepPlan& plan) {
  StepResult result{.step = plan.step, .epoch = plan.epoch, .results = {}};
  for (const SequenceStep& step : plan.steps) {
    if (step.sample) result.results.push_back({step.id, {7}, {}, 0, {}, false});
  }
  StepEncoder encoder;
  const auto bytes = must(encoder.encode(result));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

extern "C" {

[[gnu::noinline]] void plan_step(Replica& replica, std::optional<StepPlan>& plan) {
  plan = replica.scheduler.plan();
  replica.bytes += must(replica.encoder.encode(*plan)).size();
}

[[gnu::noinline]] void take_answers(Replica& replica, const std::vector<std::byte>& answer,
                                    Clock::time_point now, bool reports) {
  for (SequenceUpdate& update : must(replica.scheduler.apply(must(decode_result(answer))))) {
    replica.tokens += update.tokens.size();
    auto outcome = replica.tracker.take(std::move(update), now);
    if (outcome.completion) replica.report.completions.push_back(*std::move(outcome.completion));
  }
  if (!reports) return;
  if (replica.is_armed) replica.report.progress = replica.tracker.take_progress();
  replica.report.stats.output_tokens = replica.tokens;
  const Bytes sent = encode(std::exchange(replica.report, {}));
  replica.bytes += sent.size();
  EngineReport got = must(decode<EngineReport>(sent));
  if (replica.is_armed) replica.ledger.take(got, true);
}
}

}  // namespace troupe

int main(int argc, char** argv) {
  if (argc != 5) return std::fprintf(stderr, "see the head of the source\n"), 2;
  const bool armed = std::atoi(argv[1]) != 0;
  const int sequences = std::atoi(argv[2]), steps = std::atoi(argv[3]), each = std::atoi(argv[4]);
  troupe::Replica replica(armed, sequences, steps);
  troupe::Clock::time_point now{};
  for (int i = 1; i <= steps; ++i) {
    std::optional<troupe::StepPlan> plan;
    troupe::plan_step(replica, plan);
    now += std::chrono::milliseconds(5);
    troupe::take_answers(replica, troupe::answer_to(*plan), now, i % each == 0);
  }
  std::printf("%d sequences, %d steps, recovery %s: %llu tokens, %zu bytes sent\n", sequences,
              steps, armed ? "armed" : "not armed", static_cast<unsigned long long>(replica.tokens),
              replica.bytes);
  return replica.tokens == static_cast<std::uint64_t>(sequences) * steps ? 0 : 1;
}
