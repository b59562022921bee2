#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/telemetry/distribution.hpp"
#include "launcher/bench/throughput/bench_client.hpp"

namespace troupe {

/// Many requests at once.
struct ThroughputFigures {
  std::int64_t requests = 0;  ///< answered
  std::int64_t failed = 0;
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  double seconds = 0;  ///< from the first submission to the last answer
  std::uint64_t steps = 0;
  std::uint64_t preemptions = 0;  ///< sequences that were recomputed
  std::uint64_t swaps = 0;        ///< sequences swapped to host memory

  double per_second(std::int64_t count) const {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
  }
};
ThroughputFigures throughput_of(std::span<const Outcome> outcomes);

/// One request after another, in milliseconds.
struct LatencyFigures {
  std::int64_t requests = 0;  ///< answered
  std::int64_t failed = 0;
  Distribution first_token_ms;  ///< TTFT
  Distribution per_token_ms;    ///< TPOT: of answers of one choice and two tokens or more
  Distribution whole_ms;
};
LatencyFigures latency_of(std::span<const Outcome> outcomes);

/// A start, in seconds from the reading of the checkpoint.
struct StartupFigures {
  double ready = 0;
  double first_token = 0;
};

}  // namespace troupe
