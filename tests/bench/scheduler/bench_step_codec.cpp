// Time to encode and decode a decode step's plan and its result. Prints medians.
#include <cstdio>
#include <cstdlib>

#include "actors/step/step_codec.hpp"
#include "tests/bench/scheduler/timing.hpp"

namespace troupe {
namespace {

void run(std::uint32_t sequences, std::size_t logprobs) {
  StepPlan plan;
  StepResult result;
  for (std::uint32_t id = 0; id < sequences; ++id) {
    SequenceStep step{id, static_cast<std::int32_t>(100 + id), 1, {}, true};
    if (id % 16 == 0) step.new_blocks = {static_cast<std::int32_t>(id)};
    plan.steps.push_back(step);
    SequenceResult row{id, {static_cast<std::int32_t>(id)}, {}, 0, {}, false};
    if (logprobs > 0) {
      row.logprobs.push_back(
          {-1.0F, std::vector<std::int32_t>(logprobs, 5), std::vector<float>(logprobs, -2.0F)});
    }
    result.results.push_back(row);
  }
  StepEncoder encoder;
  std::vector<double> samples[4];
  std::size_t plan_bytes = 0;
  std::size_t result_bytes = 0;
  for (int round = 0; round < 5000; ++round) {
    std::span<const std::byte> bytes;
    samples[0].push_back(bench::time_us([&] { bytes = encoder.encode(plan).value(); }));
    plan_bytes = bytes.size();
    samples[1].push_back(bench::time_us([&] {
      if (decode_plan(bytes)->steps.size() != sequences) std::abort();
    }));
    samples[2].push_back(bench::time_us([&] { bytes = encoder.encode(result).value(); }));
    result_bytes = bytes.size();
    samples[3].push_back(bench::time_us([&] {
      if (decode_result(bytes)->results.size() != sequences) std::abort();
    }));
  }
  double median[4];
  for (int i = 0; i < 4; ++i) median[i] = bench::quantile(samples[i], 0.5);
  std::printf(
      "%5u sequences, %2zu logprobs: plan encode %.1f decode %.1f us (%zu bytes), result encode "
      "%.1f decode %.1f us (%zu bytes), in total %.1f us\n",
      sequences, logprobs, median[0], median[1], plan_bytes, median[2], median[3], result_bytes,
      median[0] + median[1] + median[2] + median[3]);
}

}  // namespace
}  // namespace troupe

int main() {
  troupe::run(1, 0);
  troupe::run(64, 0);
  troupe::run(256, 0);
  troupe::run(256, 5);
  troupe::run(1024, 0);
}
