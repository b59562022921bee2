#include "runtime/actor/async/coroutine_call.hpp"

namespace troupe {

void CoroutineCall::resume(std::coroutine_handle<> coroutine) {
  next_ = coroutine;
  while (next_) std::exchange(next_, nullptr).resume();
  host_->on_pause(*this);
}

}  // namespace troupe
