#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/api/request.hpp"
#include "launcher/bench/throughput/step_tally.hpp"
#include "launcher/job/engine_session.hpp"
#include "launcher/job/stop_signals.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The outcome of a request. Times are in seconds from the beginning of the measurement.
struct Outcome {
  double submitted = 0;
  double first_token = 0;
  double finished = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;  ///< of all choices
  std::size_t choices = 1;
  std::string error = {};  ///< empty: answered
};

/// When requests are submitted.
struct Pace {
  std::size_t at_once = 0;  ///< the most unanswered requests at any time
  /// For each request, seconds from the beginning, ascending, before which it is not submitted; its
  /// submission time is then this, however late it really was. Empty: no such times.
  std::vector<double> arrivals = {};
};

/// The outcomes of all requests, and the engine's counters.
struct RunResult {
  std::vector<Outcome> outcomes;
  double seconds = 0;  ///< to the last answer
  EngineStats stats;   ///< the latest; counts are from the engine's start
  StepTally steps;     ///< steps reported during the run
};

/// Like run_requests, at a pace.
Result<RunResult> run_paced(EngineSession& session, std::vector<Request> requests, Pace pace,
                            StopSignals& signals);

/// Submits `requests` in order, with at most `at_once` unanswered at any time, and waits for all
/// answers. Outcomes are in the order of the requests. Errors: cancelled after a signal; peer_died
/// with the cause; those of Engine::submit.
Result<std::vector<Outcome>> run_requests(EngineSession& session, std::vector<Request> requests,
                                          std::size_t at_once, StopSignals& signals);

}  // namespace troupe
