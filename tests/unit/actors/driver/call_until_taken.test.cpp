#include "actors/driver/call_until_taken.hpp"

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/runtime/call/call_hubs.hpp"

namespace troupe {
namespace {

class Notes {
 public:
  void note(int) {}
  static constexpr std::string_view actor_type = "Notes";
  using Methods = troupe::Methods<&Notes::note>;
};

/// Keeps calls until they are answered.
class Mailbox final : public CallTarget {
 public:
  void deliver(IncomingCall call) override {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    changed_.notify_all();
  }
  /// Answers the oldest call, once it is there.
  bool answer(Result<Bytes> with) {
    std::unique_lock lock(mutex_);
    if (!wait_for(changed_, lock, 10s, [this] { return !calls_.empty(); })) return false;
    const IncomingCall call = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    call.answer(std::move(with));
    return true;
  }
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return calls_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<IncomingCall> calls_;
};

/// An actor of this process that takes one call at a time.
struct BusyActor {
  static constexpr ActorId id = 7;
  BusyActor() {
    CallHub::Options one;
    one.credits = 1;
    hub = make_hub("busy", Key{}, {}, one);
    hub->add_target(id, mailbox);
    handle = ActorHandle<Notes>({id, hub->endpoint(), "busy", "Notes"}, hub);
  }
  ~BusyActor() { hub->stop(); }

  std::shared_ptr<CallHub> hub;
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  ActorHandle<Notes> handle;
};

std::chrono::nanoseconds cpu_time() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

TEST(CallUntilTaken, waits_without_computing_while_the_actor_takes_no_calls) {
  BusyActor busy;
  const auto first = busy.handle.call<&Notes::note>(1);
  run_callback([&] { call_until_taken<&Notes::note>(busy.handle, {}, 2); });
  const auto before = cpu_time();
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(cpu_time() - before, 100ms) << "it tries again all the time";
  EXPECT_EQ(busy.mailbox->size(), 1U);
  ASSERT_TRUE(busy.mailbox->answer(Bytes{}));
  EXPECT_TRUE(first.wait(10s));
  EXPECT_TRUE(busy.mailbox->answer(Bytes{})) << "the second call is lost";
}

TEST(CallUntilTaken, tells_which_actor_failed_on_it) {
  BusyActor busy;
  Promise<std::string> failed;
  call_until_taken<&Notes::note>(
      busy.handle,
      [failed](const std::string& actor, const Error& error) {
        failed.complete(actor + ": " + error.message);
      },
      2);
  ASSERT_TRUE(busy.mailbox->answer(fail(ErrorCode::internal, "no luck")));
  const auto told = failed.future().get(10s);
  ASSERT_TRUE(told.ok()) << told.error().message;
  EXPECT_EQ(*told, "busy: no luck");
}

}  // namespace
}  // namespace troupe
