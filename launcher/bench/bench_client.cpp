#include "launcher/bench/bench_client.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto tick = std::chrono::milliseconds(50);
constexpr std::size_t submission_bytes = std::size_t{4} << 20;

/// A measurement under way.
class Run {
 public:
  Run(EngineSession& session, std::vector<Request> requests, std::size_t at_once)
      : session_(session), requests_(std::move(requests)), at_once_(at_once) {
    outcomes_.resize(requests_.size());
  }

  Result<std::vector<Outcome>> finish(StopSignals& signals) {
    while (answered_ < requests_.size()) {
      if (signals.count() > 0) return fail(ErrorCode::cancelled, "stopped by a signal");
      TROUPE_CHECK(submit());
      Mailbox::Content content = session_.take(tick);
      const double now = seconds();
      for (EngineReport& report : content.reports) take(report, now);
      if (!content.downs.empty()) {
        return session_.cause_of(std::move(content.downs), [](const EngineReport&) {});
      }
    }
    return std::move(outcomes_);
  }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  Result<void> submit() {
    while (submitted_ < requests_.size() && submitted_ - answered_ < at_once_) {
      std::vector<Request> batch;
      std::size_t bytes = 0;
      const double now = seconds();
      while (submitted_ < requests_.size() && submitted_ - answered_ < at_once_ &&
             bytes < submission_bytes) {
        Request& request = requests_[submitted_];
        request.id = submitted_ + 1;
        bytes += request.prompt.size() + request.prompt_ids.size() * sizeof(std::int32_t);
        outcomes_[submitted_].submitted = now;
        batch.push_back(std::move(request));
        ++submitted_;
      }
      TROUPE_CHECK(session_.engine().submit(std::move(batch)));
    }
    return {};
  }

  void take(EngineReport& report, double now) {
    for (Completion& completion : report.completions) {
      if (completion.id < 1 || completion.id > outcomes_.size()) continue;
      Outcome& outcome = outcomes_[completion.id - 1];
      ++answered_;
      outcome.finished = now;
      outcome.prompt_tokens = static_cast<std::int64_t>(completion.prompt_ids.size());
      if (completion.failed()) {
        outcome.error = std::move(completion.error);
        continue;
      }
      for (const Choice& choice : completion.choices) {
        outcome.output_tokens += static_cast<std::int64_t>(choice.token_ids.size());
      }
      // As if tokens were handed on one by one: what follows the last one follows each.
      const std::uint64_t between = completion.last_token_us - completion.first_token_us;
      outcome.first_token = now - static_cast<double>(between) * 1e-6;
    }
  }

  EngineSession& session_;
  std::vector<Request> requests_;
  const std::size_t at_once_;
  const Clock::time_point began_ = Clock::now();
  std::vector<Outcome> outcomes_;
  std::size_t submitted_ = 0;
  std::size_t answered_ = 0;
};

}  // namespace

Result<std::vector<Outcome>> run_requests(EngineSession& session, std::vector<Request> requests,
                                          std::size_t at_once, StopSignals& signals) {
  return Run(session, std::move(requests), at_once).finish(signals);
}

}  // namespace troupe
