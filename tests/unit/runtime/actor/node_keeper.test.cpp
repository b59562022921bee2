#include "runtime/actor/node_keeper.hpp"

#include <atomic>
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "runtime/call/future.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// An agent that no signal ends, and that says nothing, as one that waits for a dead file system.
class StuckProcess final : public NodeProcess {
 public:
  explicit StuckProcess(std::atomic<int>& kills) : kills_(kills) {}
  Result<void> give_ticket(int given_up) override {
    pollfd polled{given_up, POLLIN, 0};
    EXPECT_EQ(::poll(&polled, 1, 10000), 1);
    return {};
  }
  int pid() const override { return 7; }
  int pidfd() const override { return never_.get(); }
  std::optional<ExitStatus> wait(std::chrono::milliseconds) override { return std::nullopt; }
  void signal(int signal_number) override { kills_ += signal_number == SIGKILL ? 1 : 0; }

 private:
  std::atomic<int>& kills_;
  const UniqueFd never_{::eventfd(0, EFD_CLOEXEC)};
};

class StuckStarter final : public NodeStarter {
 public:
  Result<std::unique_ptr<NodeProcess>> start(const NodeTicket&, const std::string&) override {
    started_.complete({});
    return std::unique_ptr<NodeProcess>(std::make_unique<StuckProcess>(kills_));
  }
  bool is_local() const override { return true; }
  void wait_until_started() const { EXPECT_TRUE(started_.future().get(10s).ok()); }
  int kills() const { return kills_; }

 private:
  Promise<void> started_;
  std::atomic<int> kills_ = 0;
};

TEST(NodeKeeper, leaves_an_agent_alone_that_does_not_end_when_it_is_killed) {
  for (const bool is_given_up : {true, false}) {
    const auto starter = std::make_shared<StuckStarter>();
    Promise<std::string> ended;
    NodeKeeper keeper(
        starter, NodeTicket{}, "", [ended](const std::string& how) { ended.complete(how); }, 50ms);
    starter->wait_until_started();
    if (is_given_up) {
      keeper.give_up("its link is lost");
    } else {
      keeper.signal(SIGKILL);
    }
    const auto how = ended.future().get(10s);
    ASSERT_TRUE(how.ok()) << how.error().message;
    EXPECT_EQ(*how, "(pid 7) does not end although it was killed");
    EXPECT_GT(starter->kills(), 0);
    keeper.join();
  }
}

}  // namespace
}  // namespace troupe
