#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/engine/request.hpp"
#include "launcher/bench/throughput/step_tally.hpp"
#include "launcher/job/engine_session.hpp"
#include "launcher/job/stop_signals.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What came of a request. Times are in seconds from the beginning of the measurement.
struct Outcome {
  double submitted = 0;
  double first_token = 0;
  double finished = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;  ///< of all choices
  std::size_t choices = 1;
  std::string error = {};  ///< empty: it was answered
};

/// When requests are handed over.
struct Pace {
  std::size_t at_once = 0;  ///< of them unanswered at any time, at most
  /// Of each request, seconds from the beginning, ascending, before which it is not handed over;
  /// it then counts as submitted at that time, however late its turn came. Empty: no such times.
  std::vector<double> arrivals = {};
};

/// What came of all requests, and how the engine stood then.
struct RunResult {
  std::vector<Outcome> outcomes;
  double seconds = 0;  ///< to the last answer
  EngineStats stats;   ///< the last; counts are from the engine's start
  StepTally steps;     ///< that were reported meanwhile
};

/// As run_requests, at a pace.
Result<RunResult> run_paced(EngineSession& session, std::vector<Request> requests, Pace pace,
                            StopSignals& signals);

/// Hands `requests` to the engine, in their order, of which at most `at_once` are unanswered at any
/// time, and waits for all answers. Outcomes are in the order of the requests. Errors: cancelled
/// after a signal; peer_died with the cause; those of Engine::submit.
Result<std::vector<Outcome>> run_requests(EngineSession& session, std::vector<Request> requests,
                                          std::size_t at_once, StopSignals& signals);

}  // namespace troupe
