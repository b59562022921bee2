#pragma once

#include <chrono>

#include "runtime/call/future.hpp"

namespace troupe::test {

/// Blocks the thread that runs it until it is told to go on, or for 20 s.
class BlockedCallback {
 public:
  void block() {
    begun_.complete({});
    (void)go_on_.future().wait(limit);
    ended_.complete({});
  }
  bool has_begun() const { return begun_.future().wait(limit); }
  void go_on() { go_on_.complete({}); }
  bool has_ended() const { return ended_.future().ready(); }
  bool ends() const { return ended_.future().wait(limit); }

 private:
  static constexpr std::chrono::seconds limit{20};
  Promise<void> begun_, go_on_, ended_;
};

}  // namespace troupe::test
