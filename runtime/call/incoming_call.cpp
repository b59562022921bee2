#include "runtime/call/incoming_call.hpp"

namespace troupe {

bool IncomingCallState::begin() {
  Phase before = Phase::queued;
  return phase_.compare_exchange_strong(before, Phase::running);
}

void IncomingCallState::answer(CallAnswer answer) {
  if (phase_.exchange(Phase::answered) != Phase::answered) take_answer(std::move(answer));
}

bool IncomingCallState::cancel() { return !is_cancelled_.exchange(true) && withdraw(); }

void IncomingCallState::answer_cancelled() {
  take_answer(fail(ErrorCode::cancelled, "the call was cancelled before it ran"));
}

bool IncomingCallState::withdraw() {
  Phase before = Phase::queued;
  return phase_.compare_exchange_strong(before, Phase::answered);
}

}  // namespace troupe
