#include "actors/executor/step_loop.hpp"

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

StepLoop::StepLoop(Scheduler scheduler, Channel channel, ExecutorInbox& inbox, std::int32_t replica,
                   const Tokenizer* tokenizer, ActorHandle<Driver> driver)
    : scheduler_(std::move(scheduler)),
      channel_(std::move(channel)),
      inbox_(inbox),
      replica_(replica),
      tokenizer_(tokenizer),
      driver_(std::move(driver)) {}

Result<void> StepLoop::run() {
  while (take_inbox()) {
    if (const auto plan = scheduler_.plan()) {
      const Result<void> stepped = run_step(*plan);
      if (!stepped.ok()) {
        std::lock_guard lock(inbox_.mutex);
        if (inbox_.stopping) break;
        return stepped;
      }
    }
    TROUPE_CHECK(report_if_due());
  }
  return {};
}

bool StepLoop::take_inbox() {
  std::vector<std::variant<SequenceSpec, Completion>> submitted;
  {
    std::unique_lock lock(inbox_.mutex);
    // Reports are on their way when the loop gets here, so it can sleep until somebody calls.
    inbox_.changed.wait(lock, [this] {
      return inbox_.stopping || !inbox_.submitted.empty() || inbox_.draining != draining_ ||
             scheduler_.live() > 0;
    });
    if (inbox_.stopping) return false;
    submitted.swap(inbox_.submitted);
    draining_ = inbox_.draining;
  }
  for (auto& entry : submitted) {
    if (auto* refused = std::get_if<Completion>(&entry)) {
      report_.completions.push_back(std::move(*refused));
    } else {
      admit(std::get<SequenceSpec>(std::move(entry)));
    }
  }
  if (draining_) drop_waiting();
  return true;
}

void StepLoop::admit(SequenceSpec spec) {
  const std::uint64_t request = spec.request;
  Answer answer(spec);
  const Result<void> added = scheduler_.add(std::move(spec));
  if (added.ok()) {
    answers_.emplace(request, std::move(answer));
  } else {
    report_.completions.push_back(refuse(request, "invalid_request", added.error().message));
  }
}

void StepLoop::drop_waiting() {
  for (const std::uint64_t request : scheduler_.abort_waiting()) {
    answers_.erase(request);
    report_.dropped.push_back(request);
  }
}

Result<void> StepLoop::run_step(const StepPlan& plan) {
  const auto began = Clock::now();
  TROUPE_TRY(const auto bytes, encoder_.encode(plan));
  TROUPE_CHECK(channel_.send(bytes, deadline_in(step_timeout)));
  TROUPE_TRY(const Message message, channel_.receive(deadline_in(step_timeout)));
  TROUPE_TRY(StepResult result, decode_result(message.bytes()));
  ++stats_.steps;
  stats_.model_us += result.model_us;
  stats_.step_us += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began).count());
  for (const SequenceStep& step : plan.steps) {
    stats_.prompt_tokens += static_cast<std::uint64_t>(step.tokens);
  }
  TROUPE_TRY(auto updates, scheduler_.apply(std::move(result)));
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
  stats_.running = scheduler_.running();
  stats_.waiting = scheduler_.waiting();
  const BlockPool& blocks = scheduler_.blocks();
  stats_.kv_use = 1.0 - static_cast<double>(blocks.free_blocks()) / blocks.blocks();
}

Result<void> StepLoop::report_if_due() {
  const bool first = !first_token_reported_ && stats_.output_tokens > 0;
  const auto now = Clock::now();
  if (report_.completions.empty() && report_.dropped.empty() && !first && scheduler_.live() > 0 &&
      now - last_report_ < report_interval) {
    return {};
  }
  update_stats();
  report_.replica = replica_;
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
