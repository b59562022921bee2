#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "actors/telemetry/distribution.hpp"
#include "launcher/bench/ceilings/ceilings.hpp"
#include "launcher/bench/sweep/model_work.hpp"
#include "launcher/bench/throughput/bench_client.hpp"
#include "launcher/cli/bench_options.hpp"

namespace troupe {

/// Returns the seconds at which `count` requests arrive by a Poisson process of `rate` per second,
/// the first at 0; all at 0 for an infinite rate. A function of `seed` alone.
std::vector<double> poisson_arrivals(std::size_t count, double rate, std::uint64_t seed);

/// A run at one load, with the engine's counters during it.
struct SweepRun {
  std::vector<Outcome> outcomes;
  double seconds = 0;  ///< to the last answer
  StepTally steps;
  double computed_prompt_tokens = 0;
};

/// The result of one load, over all its runs.
struct SweepPoint {
  double load = 0;  ///< see SweepOptions::loads
  std::int64_t runs = 0;
  std::int64_t answered = 0;
  std::int64_t failed = 0;
  double seconds = 0;  ///< of all runs together
  double requests_per_second = 0;
  double output_tokens_per_second = 0;
  double all_tokens_per_second = 0;
  double min_output_tokens_per_second = 0;  ///< the slowest run's
  double max_output_tokens_per_second = 0;
  /// Requests within all limits; all if there is none. A limit on TPOT leaves out answers of
  /// several choices, which have no TPOT.
  double good_requests_per_second = 0;
  double good_share = 0;        ///< of all requests, failed ones included
  Distribution first_token_ms;  ///< TTFT
  Distribution per_token_ms;    ///< TPOT: for answers of one choice and two tokens or more
  Distribution whole_ms;
  /// MFU: share of Ceilings::operations_per_second; 0 if that is not known, like the other share.
  double operations_share = 0;
  double bytes_share = 0;  ///< of Ceilings::bytes_per_second
};

/// The figures of `runs`, not empty.
SweepPoint sweep_point(double load, std::span<const SweepRun> runs, const SweepOptions& limits,
                       const ModelWork& work, const Ceilings& ceilings);

/// All loads of a sweep.
struct SweepFigures {
  SweepOptions options;
  std::int64_t runs = 1;  ///< per load; fewer for the last point if the sweep broke off
  Ceilings ceilings;
  int ceiling_threads = 1;
  std::vector<SweepPoint> points;  ///< ascending by load; not all loads if the sweep broke off
};

}  // namespace troupe
