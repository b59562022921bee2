#include "launcher/bench/throughput/bench_client.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto tick = std::chrono::milliseconds(50);
constexpr std::size_t submission_bytes = std::size_t{4} << 20;

/// A running measurement.
class Run {
 public:
  Run(EngineSession& session, std::vector<Request> requests, Pace pace)
      : session_(session), requests_(std::move(requests)), pace_(std::move(pace)) {
    result_.outcomes.resize(requests_.size());
  }

  Result<RunResult> finish(StopSignals& signals) {
    while (answered_ < requests_.size()) {
      if (signals.count() > 0) return fail(ErrorCode::cancelled, "stopped by a signal");
      TROUPE_CHECK(submit());
      Mailbox::Content content = session_.take(time_to_wait());
      const double now = seconds();
      for (EngineReport& report : content.reports) take(report, now);
      if (!content.downs.empty()) {
        return session_.cause_of(std::move(content.downs), [](const EngineReport&) {});
      }
    }
    return std::move(result_);
  }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  bool may_submit(double now) const {
    if (submitted_ >= requests_.size() || submitted_ - answered_ >= pace_.at_once) return false;
    return pace_.arrivals.empty() || pace_.arrivals[submitted_] <= now;
  }

  /// Time until the next arrival, or the next check for signals.
  std::chrono::milliseconds time_to_wait() const {
    const bool by_time = !pace_.arrivals.empty() && submitted_ < requests_.size();
    if (!by_time || submitted_ - answered_ >= pace_.at_once) return tick;
    const double left = std::max(0.0, pace_.arrivals[submitted_] - seconds());
    return std::min(tick, std::chrono::milliseconds(static_cast<std::int64_t>(left * 1e3)));
  }

  Result<void> submit() {
    while (may_submit(seconds())) {
      std::vector<Request> batch;
      std::size_t bytes = 0;
      const double now = seconds();
      while (may_submit(now) && bytes < submission_bytes) {
        Request& request = requests_[submitted_];
        request.id = submitted_ + 1;
        bytes += request.prompt.size() + request.prompt_ids.size() * sizeof(std::int32_t);
        result_.outcomes[submitted_].submitted =
            pace_.arrivals.empty() ? now : pace_.arrivals[submitted_];
        batch.push_back(std::move(request));
        ++submitted_;
      }
      TROUPE_CHECK(session_.engine().submit(std::move(batch)));
    }
    return {};
  }

  void take(EngineReport& report, double now) {
    result_.stats = report.stats;
    for (const StepRecord& record : report.steps) result_.steps.add(record);
    for (Completion& completion : report.completions) {
      if (completion.id < 1 || completion.id > requests_.size()) continue;
      Outcome& outcome = result_.outcomes[completion.id - 1];
      ++answered_;
      result_.seconds = now;
      outcome.finished = now;
      outcome.prompt_tokens = static_cast<std::int64_t>(completion.prompt_ids.size());
      if (completion.failed()) {
        outcome.error = std::move(completion.error);
        continue;
      }
      outcome.choices = completion.choices.size();
      for (const Choice& choice : completion.choices) {
        outcome.output_tokens += static_cast<std::int64_t>(choice.token_ids.size());
      }
      // Counts tokens as delivered one by one: the time after the last one is added to each.
      const std::uint64_t between = completion.last_token_us - completion.first_token_us;
      outcome.first_token = now - static_cast<double>(between) * 1e-6;
    }
  }

  EngineSession& session_;
  std::vector<Request> requests_;
  const Pace pace_;
  const Clock::time_point began_ = Clock::now();
  RunResult result_;
  std::size_t submitted_ = 0;
  std::size_t answered_ = 0;
};

}  // namespace

Result<std::vector<Outcome>> run_requests(EngineSession& session, std::vector<Request> requests,
                                          std::size_t at_once, StopSignals& signals) {
  TROUPE_TRY(RunResult result,
             run_paced(session, std::move(requests), {.at_once = at_once}, signals));
  return std::move(result.outcomes);
}

Result<RunResult> run_paced(EngineSession& session, std::vector<Request> requests, Pace pace,
                            StopSignals& signals) {
  return Run(session, std::move(requests), std::move(pace)).finish(signals);
}

}  // namespace troupe
