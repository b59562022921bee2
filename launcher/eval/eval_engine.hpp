#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/api/request.hpp"
#include "launcher/job/engine_session.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/job/stop_signals.hpp"
#include "launcher/progress/progress_printer.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// A model's engine, which answers requests for the judge and shows progress. Ctrl-Z suspends its
/// processes. One thread.
class EvalEngine {
 public:
  /// What `started` needs; all outlive the engine.
  struct Context {
    const std::string& log_folder;
    log::Level log_level;
    StopSignals& signals;
    ProgressPrinter& progress;
    ProgressState& state;  ///< its phase, seconds and counts are kept up to date
  };

  /// Starts the engine and waits until it takes requests. Errors: cancelled after a signal; those
  /// of EngineSession.
  static Result<EvalEngine> start(const JobPlan& plan, const Context& context);
  EvalEngine(EvalEngine&&) noexcept = default;
  EvalEngine& operator=(EvalEngine&&) = delete;
  ~EvalEngine();

  using OnAnswer = std::function<Result<void>(std::size_t request, Completion&)>;
  /// Submits the requests, with at most `at_once` unanswered, and passes each answer with the index
  /// of its request. Errors: cancelled after a signal; those of `on_answer`; invalid_argument for a
  /// request that is refused; peer_died with the cause.
  Result<void> ask(std::vector<Request> requests, std::size_t at_once, const OnAnswer& on_answer);

 private:
  EvalEngine(std::unique_ptr<EngineSession> session, const Context& context)
      : session_(std::move(session)), context_(context) {}
  Result<std::size_t> take_answers(const OnAnswer& on_answer);

  std::unique_ptr<EngineSession> session_;
  Context context_;
};

}  // namespace troupe
