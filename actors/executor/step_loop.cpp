#include "actors/executor/step_loop.hpp"

#include <algorithm>
#include <utility>

#include "actors/driver/driver.hpp"
#include "runtime/base/log.hpp"

namespace troupe {
namespace {

/// Longer than any step: a worker that died is noticed by supervision, not by this.
constexpr auto step_timeout = std::chrono::minutes(10);
/// While steps go on, the driver hears of progress this often; of answers at once.
constexpr auto report_interval = std::chrono::milliseconds(200);

}  // namespace

StepLoop::StepLoop(StepDomain domain, std::vector<StepChannels> channels, ExecutorInbox& inbox,
                   std::int32_t index, const Tokenizer* tokenizer, ActorHandle<Driver> driver)
    : domain_(std::move(domain)),
      channels_(std::move(channels)),
      inbox_(inbox),
      index_(index),
      tokenizer_(tokenizer),
      driver_(std::move(driver)) {}

Result<void> StepLoop::run() {
  while (take_inbox()) {
    Result<void> stepped = send_plans();
    if (stepped.ok() && domain_.in_flight() > 0) stepped = take_results();
    if (!stepped.ok()) {
      std::lock_guard lock(inbox_.mutex);
      if (inbox_.stopping) break;
      return stepped;
    }
    TROUPE_CHECK(report_if_due());
  }
  return {};
}

void StepLoop::interrupt() {
  for (StepChannels& replica : channels_) {
    replica.plans.interrupt();
    if (replica.results) replica.results->interrupt();
  }
}

bool StepLoop::take_inbox() {
  std::vector<ExecutorInbox::Entry> submitted;
  {
    std::unique_lock lock(inbox_.mutex);
    // Reports are on their way when the loop gets here, so it can sleep until somebody calls.
    inbox_.changed.wait(lock, [this] {
      return inbox_.stopping || !inbox_.submitted.empty() || inbox_.draining != draining_ ||
             domain_.live() > 0 || domain_.in_flight() > 0;
    });
    if (inbox_.stopping) return false;
    submitted.swap(inbox_.submitted);
    draining_ = inbox_.draining;
  }
  for (auto& entry : submitted) {
    if (auto* refused = std::get_if<Completion>(&entry.prepared)) {
      report_.completions.push_back(std::move(*refused));
    } else {
      admit(entry.replica, std::get<SequenceSpec>(std::move(entry.prepared)));
    }
  }
  if (draining_) drop_waiting();
  return true;
}

void StepLoop::admit(std::size_t replica, SequenceSpec spec) {
  const std::uint64_t request = spec.request;
  Answer answer(spec);
  const Result<void> added = domain_.replica(replica).add(std::move(spec));
  if (added.ok()) {
    answers_.emplace(request, std::move(answer));
  } else {
    report_.completions.push_back(refuse(request, "invalid_request", added.error().message));
  }
}

void StepLoop::drop_waiting() {
  for (const std::uint64_t request : domain_.abort_waiting()) {
    answers_.erase(request);
    report_.dropped.push_back(request);
  }
}

Result<void> StepLoop::send_plans() {
  while (true) {
    const std::vector<StepPlan> plans = domain_.plan();
    if (plans.empty()) return {};
    Sent sent{Clock::now()};
    for (std::size_t i = 0; i < plans.size(); ++i) {
      TROUPE_TRY(const auto bytes, encoder_.encode(plans[i]));
      TROUPE_CHECK(channels_[i].plans.send(bytes, deadline_in(step_timeout)));
      for (const SequenceStep& step : plans[i].steps) {
        sent.tokens += static_cast<std::uint64_t>(step.tokens);
      }
    }
    in_flight_.push_back(sent);
  }
}

Result<void> StepLoop::take_results() {
  std::vector<StepResult> results;
  std::uint32_t model_us = 0;
  for (StepChannels& replica : channels_) {
    TROUPE_TRY(const Message message, replica.answering().receive(deadline_in(step_timeout)));
    TROUPE_TRY(StepResult result, decode_result(message.bytes()));
    model_us = std::max(model_us, result.model_us);
    results.push_back(std::move(result));
  }
  const Sent sent = in_flight_.front();
  in_flight_.pop_front();
  ++stats_.steps;
  stats_.model_us += model_us;
  stats_.step_us += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - sent.at).count());
  stats_.prompt_tokens += sent.tokens;
  TROUPE_TRY(auto updates, domain_.apply(std::move(results)));
  take_updates(std::move(updates));
  return {};
}

void StepLoop::take_updates(std::vector<SequenceUpdate> updates) {
  for (SequenceUpdate& update : updates) {
    const auto found = answers_.find(update.request);
    if (found == answers_.end()) continue;  // ended by somebody while the step ran
    // A sampled token is computed in a later step; that row is not the prompt's.
    if (found->second.begun()) --stats_.prompt_tokens;
    stats_.output_tokens += update.tokens.size();
    const auto end = update.end;
    found->second.add(std::move(update));
    if (!end) continue;
    report_.completions.push_back(found->second.finish(*end, tokenizer_));
    answers_.erase(found);
  }
}

void StepLoop::update_stats() {
  stats_.running = domain_.running();
  stats_.waiting = domain_.waiting();
  stats_.kv_use = domain_.kv_use();
}

Result<void> StepLoop::report_if_due() {
  const bool first = !first_token_reported_ && stats_.output_tokens > 0;
  const auto now = Clock::now();
  if (report_.completions.empty() && report_.dropped.empty() && !first && domain_.live() > 0 &&
      now - last_report_ < report_interval) {
    return {};
  }
  update_stats();
  report_.domain = index_;
  report_.stats = stats_;
  report_.first_token = first;
  first_token_reported_ |= first;
  last_report_ = now;
  // The answer to the call is not waited for; if the driver is gone this process ends as well. A
  // report that could not be sent has failed by now.
  auto sent = driver_.call<&Driver::report>(std::exchange(report_, EngineReport{}));
  return sent.ready() ? sent.get(std::chrono::seconds(0)) : Result<void>();
}

}  // namespace troupe
