#include "runtime/call/call_scope.hpp"

#include <algorithm>

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

bool may_begin(const IncomingCall& call, std::string_view actor_name) {
  if (call.deadline != no_deadline && std::chrono::steady_clock::now() >= call.deadline) {
    call.answer(fail(ErrorCode::timed_out,
                     "the deadline of the call passed before actor '{}' took it", actor_name));
    return false;
  }
  return call.answer.begin();  // false if it was cancelled
}

CallTerms terms_of(const CallOptions& options, int default_retries) {
  CallTerms terms{.max_retries = options.max_retries.value_or(default_retries)};
  if (current_scope != nullptr) terms.deadline = current_scope->deadline();
  if (!options.timeout) return terms;
  const auto now = std::chrono::steady_clock::now();
  if (*options.timeout < no_deadline - now) {
    terms.deadline = std::min(terms.deadline, now + *options.timeout);
  }
  return terms;
}

}  // namespace troupe
