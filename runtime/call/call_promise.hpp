#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/call/call_completion.hpp"
#include "runtime/call/call_hub.hpp"
#include "runtime/call/future.hpp"

namespace troupe {

/// What a call needs besides its answer's type.
struct CallPromiseOptions {
  CallbackPlace place;
  std::weak_ptr<CallHub> hub;  ///< by which the call is made, for the handles in its answer
  /// What must live until the answer is there: objects that the arguments refer to. The receiver
  /// has registered its references before it answers.
  std::vector<std::shared_ptr<const void>> kept{};
  /// Decodes the answer as it comes, not when it is taken.
  bool decodes_at_once = false;
  /// Hears of an error; may be null.
  void (*note_failure)(CallHub& hub, ErrorCode code) = nullptr;
};

namespace future_detail {

/// The state of the future of a call, which is what receives the call's answer, too: so a call
/// takes one piece of memory for both.
template <class T>
class CallState final : public State<T>, public AnswerReceiver {
 public:
  explicit CallState(CallPromiseOptions options)
      : State<T>(std::move(options.place)),
        hub_(std::move(options.hub)),
        kept_(std::move(options.kept)),
        note_failure_(options.note_failure),
        decodes_at_once_(options.decodes_at_once) {}

  void receive(const std::shared_ptr<AnswerReceiver>& self, Result<Bytes> answer) override {
    const auto kept = std::move(kept_);
    if (!answer.ok()) {
      if (note_failure_ != nullptr) {
        if (const auto hub = hub_.lock()) note_failure_(*hub, answer.error().code);
      }
      put(self, Result<T>(std::move(answer).error()));
    } else if constexpr (std::is_void_v<T>) {
      put(self, Result<void>());
    } else if (decodes_at_once_) {
      put(self, decode<T>(*answer, hub_));
    } else {
      put(self, *std::move(answer));
    }
  }

  /// Says which call it is. It is kept as long as this is: so the memory of a call within the
  /// process is freed where it was allocated, not by the actor's thread, for which the heap would
  /// be locked.
  void set_ticket(CallTicket ticket) {
    const std::lock_guard lock(this->mutex_);
    ticket_ = std::move(ticket);
  }
  void cancel() override {
    std::unique_lock lock(this->mutex_);
    if (this->done_) return;
    const CallTicket ticket = ticket_;
    lock.unlock();
    if (const auto hub = hub_.lock()) hub->cancel(ticket);
  }

 private:
  template <class Answer>
  void put(const std::shared_ptr<AnswerReceiver>& self, Answer answer) {
    this->complete_with(std::static_pointer_cast<CallState>(self),
                        [&] { this->answer_ = std::move(answer); });
  }
  Result<T> decode_answer(const Bytes& encoded) const override {
    if constexpr (std::is_void_v<T>) {
      return {};
    } else {
      return decode<T>(encoded, hub_);
    }
  }

  const std::weak_ptr<CallHub> hub_;
  std::vector<std::shared_ptr<const void>> kept_;
  void (*const note_failure_)(CallHub& hub, ErrorCode code);
  const bool decodes_at_once_;
  CallTicket ticket_;
};

}  // namespace future_detail

/// The producing end of the future of a call: the call's completion completes it.
template <class T>
class CallPromise {
 public:
  explicit CallPromise(CallPromiseOptions options)
      : state_(std::make_shared<future_detail::CallState<T>>(std::move(options))) {}

  Future<T> future() const { return Future<T>(std::shared_ptr<future_detail::State<T>>(state_)); }
  CallCompletion completion() const {
    return CallCompletion(std::shared_ptr<AnswerReceiver>(state_));
  }
  /// Says which call it is, for Future::cancel.
  void set_ticket(CallTicket ticket) const { state_->set_ticket(std::move(ticket)); }

 private:
  std::shared_ptr<future_detail::CallState<T>> state_;
};

}  // namespace troupe
