#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "actors/api/request.hpp"
#include "actors/telemetry/span_recorder.hpp"
#include "launcher/job/input_ahead.hpp"
#include "launcher/job/job_output.hpp"
#include "launcher/job/pending_requests.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Reads a job's input as far as engine and output have room, submits requests to the engine, and
/// writes the error lines of invalid ones. One thread at a time.
class RequestFeed {
 public:
  /// Where lines go; all must outlive the feed.
  struct Sinks {
    JobOutput& output;
    PendingRequests& pending;
    SpanRecorder& spans;
    std::function<Result<void>(std::vector<Request>)> submit;
    std::function<void(const LineError&)> on_refused;
  };
  RequestFeed(InputAhead& input, Sinks sinks) : input_(&input), sinks_(std::move(sinks)) {}

  /// Reads for at most 20 ms, so that signals and answers get their turn. Errors: those of the
  /// output and of submit.
  Result<void> read();

  /// Why the last read() ended.
  enum class State : std::uint8_t {
    flows,   ///< there is more input
    silent,  ///< a pipe has no data at the moment
    full,    ///< engine or output have no room
    ended,   ///< the input has ended, or is broken
  };
  State state() const { return state_; }
  /// The error that ended the input. A pipe cannot be read again, so the lines before the error are
  /// answered first.
  const std::optional<Error>& broken() const { return broken_; }

 private:
  Result<void> take(BatchReader::Item item);
  Result<void> submit();

  InputAhead* input_;
  Sinks sinks_;
  State state_ = State::flows;
  std::optional<Error> broken_;
  std::vector<Request> requests_;  ///< not submitted yet
  std::size_t bytes_ = 0;          ///< of requests_
};

}  // namespace troupe
