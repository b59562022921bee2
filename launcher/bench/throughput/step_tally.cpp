#include "launcher/bench/throughput/step_tally.hpp"

#include <algorithm>

namespace troupe {

void StepTally::add(const StepRecord& record) {
  // A generated token is computed by the step that generates the next one.
  const std::uint64_t tokens = record.prompt_tokens + record.output_tokens;
  if (record.steps == 0 || tokens == 0) return;
  const std::uint64_t each = std::max<std::uint64_t>(tokens / record.steps, 1);
  by_tokens[each] += record.steps;
  if (record.output_tokens > 0) sampling += record.steps;
}

}  // namespace troupe
