#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <thread>

#include "tests/process/runtime/actor/test_actors.hpp"

namespace troupe::test {

inline int threads_of_this_process() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                                        std::filesystem::directory_iterator()));
}

/// One of many actors of a process.
class Member {
 public:
  explicit Member(ActorContext& context) : context_(context) {}

  void set_next(const ActorHandle<Member>& next) { next_ = next; }
  /// Asks the next one, and so on to the last one, which answers; all wait meanwhile.
  Result<int> depth() {
    if (!next_) return 1;
    TROUPE_TRY(const int behind, next_.call<&Member::depth>().get(limit));
    return behind + 1;
  }
  /// Calls the next one `count` times without waiting; returns how many of the calls failed.
  int flood_next(int count) {
    std::vector<Future<void>> answers;
    for (int i = 0; i < count; ++i) answers.push_back(next_.call<&Member::note>(i));
    return static_cast<int>(
        std::ranges::count_if(answers, [](auto& answer) { return !answer.get(limit).ok(); }));
  }
  void note(int number) { notes_.push_back(number); }
  std::vector<int> notes() { return notes_; }
  /// Calls itself again and again until `leave`.
  void go_on_for_ever() { context_.self<Member>().call<&Member::go_on_for_ever>(); }
  int threads() { return threads_of_this_process(); }
  int thread() { return ::gettid(); }
  void leave() { context_.exit("had enough"); }

  static constexpr std::string_view actor_type = "Member";
  using Methods = troupe::Methods<&Member::set_next, &Member::depth, &Member::flood_next,
                                  &Member::note, &Member::notes, &Member::go_on_for_ever,
                                  &Member::threads, &Member::thread, &Member::leave>;

 private:
  ActorContext& context_;
  ActorHandle<Member> next_;
  std::vector<int> notes_;
};

}  // namespace troupe::test
