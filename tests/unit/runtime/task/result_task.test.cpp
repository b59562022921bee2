#include "runtime/task/result_task.hpp"

#include <gtest/gtest.h>

#include "runtime/task/object_task.hpp"
#include "tests/unit/runtime/object/test_stores.hpp"

namespace troupe::test {
namespace {

/// Gathers the tasks that are submitted, which the test answers.
class Submitted {
 public:
  SendTask sender() {
    return [this](SubmittedTask task, CallCompletion done) {
      std::unique_lock lock(mutex_);
      if (is_full_) {
        ++refusals_;
        lock.unlock();
        done(fail(ErrorCode::resource_exhausted, "there is no room"));
        return CallTicket();
      }
      tasks_.emplace_back(std::move(task), std::move(done));
      return CallTicket();
    };
  }
  /// From now on tasks are refused, or taken again.
  void set_full(bool is_full) {
    const std::lock_guard lock(mutex_);
    is_full_ = is_full;
  }
  int refusals() {
    const std::lock_guard lock(mutex_);
    return refusals_;
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return tasks_.size();
  }
  Bytes arguments(std::size_t number) {
    const std::lock_guard lock(mutex_);
    return tasks_.at(number).first.arguments;
  }
  void answer(std::size_t number, const task_detail::ObjectAnswer& answer) {
    std::unique_lock lock(mutex_);
    const CallCompletion done = tasks_.at(number).second;
    lock.unlock();
    done(encode(answer));
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<SubmittedTask, CallCompletion>> tasks_;
  bool is_full_ = false;
  int refusals_ = 0;
};

ObjectSharePtr start_task(const TestProcess& owner, Submitted& submitted) {
  return ResultTask::start(owner.store(), owner.weak_hub(), submitted.sender(),
                           SubmittedTask{{.max_retries = 1}, 7, Bytes(100, std::byte{5})}, {},
                           [](Bytes answer, const std::weak_ptr<CallHub>&) -> Result<EncodedValue> {
                             return EncodedValue{std::move(answer), {}};
                           });
}

TEST(ResultTask, keeps_its_arguments_if_its_object_is_there_when_another_worker_answers) {
  TestNode node;
  const auto owner = TestProcess::start("owner", node), worker = TestProcess::start("worker", node);
  Submitted submitted;
  const auto share = start_task(*owner, submitted);
  // The worker has the object, but its answer is lost, and the task is run once more elsewhere.
  ASSERT_TRUE(worker->store().hold_result(share->address(), Bytes(1 << 20)).ok());
  submitted.answer(0, {false, Bytes(8)});
  worker->die();
  ASSERT_TRUE(comes_true([&] { return submitted.count() == 2; }));
  EXPECT_EQ(submitted.arguments(1), submitted.arguments(0));
  submitted.answer(1, {false, encode(Numbers{1, 2})});
  EXPECT_FALSE(owner->store().is_pending(share->address().id));
}

TEST(ResultTask, is_cancelled_while_it_waits_for_room_to_run_again) {
  TestNode node;
  const auto owner = TestProcess::start("owner", node), worker = TestProcess::start("worker", node);
  Submitted submitted;
  const auto share = start_task(*owner, submitted);
  ASSERT_TRUE(worker->store().hold_result(share->address(), Bytes(1 << 20)).ok());
  submitted.answer(0, {true, {}});
  submitted.set_full(true);
  worker->die();
  ASSERT_TRUE(comes_true([&] { return submitted.refusals() >= 1; }));
  owner->store().cancel(share);
  EXPECT_EQ(owner->store().get_data(share, limit).error().code, ErrorCode::cancelled);
  submitted.set_full(false);
  const int refusals = submitted.refusals();
  std::this_thread::sleep_for(200ms);  // longer than it waits for room
  EXPECT_EQ(submitted.refusals(), refusals);
  EXPECT_EQ(submitted.count(), 1) << "it runs although it was cancelled";
}

}  // namespace
}  // namespace troupe::test
