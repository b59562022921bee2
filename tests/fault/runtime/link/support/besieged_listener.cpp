#include "tests/fault/runtime/link/support/besieged_listener.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "runtime/call/future.hpp"
#include "runtime/link/link.hpp"
#include "tests/support/knocker.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto patience = 10s;
const LinkPeer driver{"driver", "job"};
const LinkPeer agent{"agent", "node0"};

/// A process that knocks at a given port until the object is destroyed.
class Besiegers {
 public:
  Besiegers() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    const UniqueFd told(ends[0]);
    tell_.reset(ends[1]);
    child_ = ::fork();
    if (child_ != 0) return;
    tell_.reset();
    std::uint16_t port = 0;
    if (::read(told.get(), &port, sizeof port) == sizeof port) {
      const Knocker knocker(Knocker::to_port(port), {.idle = 2000, .knocks_per_second = 200});
      char byte = 0;
      (void)!::read(told.get(), &byte, 1);  // ends with the other end
    }
    ::_exit(0);
  }
  ~Besiegers() {
    tell_.reset();
    ::waitpid(child_, nullptr, 0);
  }
  Besiegers(const Besiegers&) = delete;
  Besiegers& operator=(const Besiegers&) = delete;
  void begin(std::uint16_t port) { (void)!::write(tell_.get(), &port, sizeof port); }

 private:
  UniqueFd tell_;
  pid_t child_ = -1;
};

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// A connection that sends a frame and waits for its echo.
struct Caller {
  Promise<void> opened;
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t echoes = 0;
  std::shared_ptr<TlsLink> link;

  Result<void> connect(LinkLoop& loop, std::uint16_t port, const Key& key) {
    LinkEvents events{[this](const auto&) { opened.complete({}); },
                      [this](const auto&, auto&) {
                        std::lock_guard lock(mutex);
                        ++echoes;
                        changed.notify_all();
                      },
                      [this](const auto&, const Error& why) { opened.complete(why); }};
    TROUPE_TRY(link, loop.connect("127.0.0.1", port, agent, driver, key, std::move(events)));
    return opened.future().get(patience);
  }
  bool ask() {
    std::unique_lock lock(mutex);
    const std::size_t wanted = echoes + 1;
    if (!link->send(LinkFrame(std::vector<std::byte>(100))).ok()) return false;
    return wait_for(changed, lock, patience, [&] { return echoes >= wanted; });
  }
};

}  // namespace

void besiege_a_listener(std::chrono::seconds duration) {
  Besiegers besiegers;  // forked before there are threads
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit few = before;
  few.rlim_cur = std::min<rlim_t>(1024, before.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &few);
  {
    const auto keys = *JobKeys::generate();
    const Key key = link_key(keys, driver, agent);
    auto server = LinkLoop::start();
    ASSERT_TRUE(server.ok()) << server.error().message;
    LinkEvents echo{{},
                    [](const std::shared_ptr<TlsLink>& link, std::vector<std::byte>& frame) {
                      (void)link->send(LinkFrame(std::move(frame)));
                    },
                    {}};
    const auto port = (*server)->listen(
        "besieged", "127.0.0.1", [&](const LinkPeer&) { return key; }, std::move(echo));
    ASSERT_TRUE(port.ok()) << port.error().message;
    Caller caller;
    auto client = *LinkLoop::start();
    ASSERT_TRUE(caller.connect(*client, *port, key).ok());
    besiegers.begin(*port);

    const double cpu_before = cpu_seconds();
    const auto end = Clock::now() + duration;
    std::size_t asked = 0, failed = 0, late = 0;
    while (Clock::now() < end) {
      ++asked;
      failed += caller.ask() ? 0 : 1;
      if (asked % 100 == 0) {
        Caller newcomer;
        auto loop = *LinkLoop::start();
        late += newcomer.connect(*loop, *port, key).ok() ? 0 : 1;
        loop->stop();
      }
      std::this_thread::sleep_for(10ms);  // the interval between requests
    }
    const double share = (cpu_seconds() - cpu_before) / static_cast<double>(duration.count());
    std::printf("%zu requests, %zu failed, %zu newcomers kept out, %.1f %% of a core\n", asked,
                failed, late, share * 100);
    EXPECT_GT(asked, 10U);
    EXPECT_EQ(failed, 0U);
    EXPECT_EQ(late, 0U);
    if (time_scale == 1) {
      EXPECT_LT(share, 0.10);
    }
    client->stop();
    (*server)->stop();
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace troupe::test
