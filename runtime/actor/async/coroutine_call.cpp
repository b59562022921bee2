#include "runtime/actor/async/coroutine_call.hpp"

#include "runtime/call/call_scope.hpp"

namespace troupe {

void CoroutineCall::resume(std::coroutine_handle<> coroutine) {
  next_ = coroutine;
  host_->on_resume();
  {
    const CallScope scope(deadline_, cancel_);
    while (next_) std::exchange(next_, nullptr).resume();
  }
  host_->on_pause(*this);
}

}  // namespace troupe
