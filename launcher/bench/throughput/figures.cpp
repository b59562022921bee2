#include "launcher/bench/throughput/figures.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace troupe {

ThroughputFigures throughput_of(std::span<const Outcome> outcomes) {
  ThroughputFigures figures;
  for (const Outcome& outcome : outcomes) {
    figures.seconds = std::max(figures.seconds, outcome.finished);
    if (!outcome.error.empty()) {
      ++figures.failed;
      continue;
    }
    ++figures.requests;
    figures.input_tokens += outcome.prompt_tokens;
    figures.output_tokens += outcome.output_tokens;
  }
  return figures;
}

LatencyFigures latency_of(std::span<const Outcome> outcomes) {
  LatencyFigures figures;
  std::vector<double> first, per_token, whole;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.error.empty()) {
      ++figures.failed;
      continue;
    }
    ++figures.requests;
    first.push_back((outcome.first_token - outcome.submitted) * 1e3);
    whole.push_back((outcome.finished - outcome.submitted) * 1e3);
    if (outcome.choices != 1 || outcome.output_tokens < 2) continue;
    per_token.push_back((outcome.finished - outcome.first_token) * 1e3 /
                        static_cast<double>(outcome.output_tokens - 1));
  }
  figures.first_token_ms = distribution_of(std::move(first));
  figures.per_token_ms = distribution_of(std::move(per_token));
  figures.whole_ms = distribution_of(std::move(whole));
  return figures;
}

}  // namespace troupe
