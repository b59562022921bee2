#include "runtime/call/incoming_call.hpp"

namespace troupe {

bool IncomingCallState::begin() {
  Phase before = Phase::queued;
  return phase_.compare_exchange_strong(before, Phase::running);
}

void IncomingCallState::answer(CallAnswer answer) {
  if (phase_.exchange(Phase::answered) != Phase::answered) take_answer(std::move(answer));
}

void IncomingCallState::cancel(const std::function<void()>& drop) {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    if (is_cancelled_.exchange(true)) return;
    callback = std::exchange(on_cancel_, nullptr);
  }
  Phase before = Phase::queued;
  if (phase_.compare_exchange_strong(before, Phase::answered)) {
    drop();  // before the answer, which gives the credit back
    take_answer(fail(ErrorCode::cancelled, "the call was cancelled before it ran"));
  }
  if (callback) callback();
}

bool IncomingCallState::withdraw() {
  Phase before = Phase::queued;
  return phase_.compare_exchange_strong(before, Phase::answered);
}

void IncomingCallState::on_cancel(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_cancelled_) {
      on_cancel_ = std::move(callback);
      return;
    }
  }
  callback();
}

}  // namespace troupe
