#pragma once

#include <string_view>

#include "runtime/call/call_terms.hpp"
#include "runtime/call/incoming_call.hpp"

namespace troupe {

/// While it lives, this thread runs the method of a call: calls made on it inherit the deadline,
/// and ActorContext tells it and whether the call was cancelled. Scopes nest; whoever runs a method
/// in pieces makes one for each. Belongs to the thread that made it; `call` must outlive it.
class CallScope {
 public:
  explicit CallScope(const IncomingCall& call) : CallScope(call.deadline, call.cancel) {}
  CallScope(CallDeadline deadline, const CancelToken& cancel);
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

  /// The innermost scope of this thread; null outside of all.
  static const CallScope* current();

  CallDeadline deadline() const { return deadline_; }
  const CancelToken& cancel() const { return cancel_; }
  /// True once the caller has cancelled the call, or its deadline has passed.
  bool is_cancelled() const;

 private:
  const CallDeadline deadline_;
  const CancelToken& cancel_;
  const CallScope* const outer_;
};

/// True if the method of a call that was queued may run now. Otherwise it has been answered: it was
/// cancelled, or its deadline has passed.
bool may_begin(const IncomingCall& call, std::string_view actor_name);

/// What a call made now on this thread asks for: the nearer of its deadline and that of the method
/// that makes it.
CallTerms terms_of(const CallOptions& options, int default_retries);

}  // namespace troupe
