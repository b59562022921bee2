#include "runtime/call/call_scope.hpp"

namespace troupe {
namespace {

thread_local const CallScope* current_scope = nullptr;

}  // namespace

CallScope::CallScope(CallDeadline deadline, const CancelToken& cancel)
    : deadline_(deadline), cancel_(cancel), outer_(current_scope) {
  current_scope = this;
}

CallScope::~CallScope() { current_scope = outer_; }

const CallScope* CallScope::current() { return current_scope; }

bool CallScope::is_cancelled() const {
  return cancel_.is_cancelled() ||
         (deadline_ != no_deadline && std::chrono::steady_clock::now() >= deadline_);
}

}  // namespace troupe
