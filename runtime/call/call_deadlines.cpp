#include "runtime/call/call_deadlines.hpp"

#include <atomic>
#include <vector>

#include "runtime/call/callback.hpp"

namespace troupe {

struct CallDeadlines::Guarded {
  std::string actor_name;
  CallCompletion completion;
  std::function<void()> on_late;
  std::atomic<bool> is_over = false;
};

CallCompletion CallDeadlines::guard(CallDeadline deadline, std::string actor_name,
                                    CallCompletion completion, std::function<void()> on_late) {
  auto one = std::make_shared<Guarded>();
  one->actor_name = std::move(actor_name);
  one->completion = std::move(completion);
  one->on_late = std::move(on_late);
  Key key;
  bool is_earlier = false;
  {
    const std::lock_guard lock(mutex_);
    key = {deadline, next_++};
    guarded_.emplace(key, one);
    is_earlier = deadline < armed_;
    if (is_earlier) armed_ = deadline;
  }
  if (is_earlier) wake_at_(deadline);
  return [self = shared_from_this(), key, one](Result<Bytes> answer) {
    if (one->is_over.exchange(true)) return;
    {
      const std::lock_guard lock(self->mutex_);
      self->guarded_.erase(key);
    }
    one->completion(std::move(answer));
  };
}

void CallDeadlines::complete_due() {
  std::vector<std::shared_ptr<Guarded>> due;
  CallDeadline next = no_deadline;
  {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    while (!guarded_.empty() && guarded_.begin()->first.first <= now) {
      due.push_back(std::move(guarded_.begin()->second));
      guarded_.erase(guarded_.begin());
    }
    // A wake-up that was armed before an earlier one came is left to itself.
    if (armed_ <= now) {
      if (!guarded_.empty()) next = guarded_.begin()->first.first;
      armed_ = next;
    }
  }
  if (next != no_deadline) wake_at_(next);
  for (const auto& one : due) {
    if (one->is_over.exchange(true)) continue;
    run_callback(one->completion, Result<Bytes>(fail(ErrorCode::timed_out,
                                                     "the call to actor '{}' was not answered "
                                                     "before its deadline",
                                                     one->actor_name)));
    if (one->on_late) run_callback(one->on_late);
  }
}

}  // namespace troupe
