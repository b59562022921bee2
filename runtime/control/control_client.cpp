#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/log.hpp"
#include "runtime/call/get_by.hpp"
#include "runtime/control/caf_supervisor.hpp"
#include "runtime/control/control_limits.hpp"
#include "runtime/control/control_plane.hpp"
#include "runtime/link/local_address.hpp"
#include "runtime/process/prompt_threads.hpp"

namespace troupe {
namespace {

constexpr std::chrono::milliseconds first_pause{50};  ///< between attempts; it grows
constexpr std::chrono::milliseconds longest_pause{1000};

/// Sleeps for `pause`, at most until the deadline, which is looked at all the time.
void sleep_within(std::chrono::milliseconds pause, Deadline& deadline) {
  const auto end = Deadline::Clock::now() + pause;
  while (Deadline::Clock::now() < end && !deadline.is_over()) {
    std::this_thread::sleep_until(std::min(end, deadline.next_look()));
  }
}

/// Looks up the addresses of a host, on a thread of its own: a name server that does not answer
/// blocks it for longer than the deadline may allow, and it then ends by itself.
Result<std::vector<std::string>> addresses_by(const std::string& host, Deadline& deadline) {
  Promise<std::vector<std::string>> promise;
  auto addresses = promise.future();
  try {
    std::thread([promise, host] { promise.complete(addresses_of(host)); }).detach();
  } catch (const std::system_error& error) {
    return fail(ErrorCode::resource_exhausted, "cannot start a thread: {}", error.what());
  }
  auto found = get_by(addresses, deadline);
  if (found.ok() || found.error().code != ErrorCode::timed_out) return found;
  return fail(ErrorCode::timed_out, "the name server does not answer for {}", host);
}

class Client final : public ControlClient {
 public:
  explicit Client(Events events) : events_(std::move(events)) {}
  ~Client() override {
    is_stopping_ = true;
    loop_.reset();
    if (supervisor_) supervisor_->stop();
    supervisor_.reset();
    link_.reset();
  }

  Result<void> connect(const Key& key, const std::string& host, std::uint16_t port,
                       const AgentReady& hello, std::chrono::milliseconds timeout,
                       const KeepGoing& keep_going) {
    TROUPE_TRY(loop_, LinkLoop::start(control_limits()));
    Deadline deadline(timeout);
    std::size_t attempt = 0;
    for (auto pause = first_pause;; pause = std::min(pause * 3 / 2, longest_pause)) {
      const auto opened = open(key, host, attempt++, port, hello, deadline);
      if (opened.ok()) return {};
      if (opened.error().code == ErrorCode::permission_denied) {
        return fail(ErrorCode::permission_denied,
                    "the driver at {}:{} does not take this agent's key; is its token or ticket of "
                    "another job? ({})",
                    host, port, opened.error().message);
      }
      if (keep_going && !keep_going()) {
        return fail(ErrorCode::cancelled, "stopped before the driver at {}:{} was there", host,
                    port);
      }
      // Too little is left for another attempt: this one's error says more than its own would.
      if (deadline.left() <= pause) {
        return fail(ErrorCode::io, "cannot reach the driver at {}:{} within {} s: {}", host, port,
                    static_cast<double>(timeout.count()) / 1000, opened.error().message);
      }
      sleep_within(pause, deadline);
    }
  }

  std::chrono::milliseconds check_driver() override {
    const auto left = supervisor_ ? supervisor_->check_lease() : Lease::Clock::duration::zero();
    if (left == Lease::Clock::duration::zero())
      return heartbeat_interval;  // on_lost has come, or comes
    return std::chrono::ceil<std::chrono::milliseconds>(left);
  }

  void send(const ControlMessage& message) override {
    const auto sent = link_->send(LinkFrame(encode_message(message)));
    if (sent.ok() || sent.error().code == ErrorCode::peer_died) return;  // on_lost reports it
    log::error("to the driver: {}", sent.error().message);
    link_->close();
  }

 private:
  /// Tries once to connect, to the host's addresses in turn: the driver listens at one of them.
  Result<void> open(const Key& key, const std::string& host, std::size_t attempt_number,
                    std::uint16_t port, const AgentReady& hello, Deadline& deadline) {
    TROUPE_TRY(const auto addresses, addresses_by(host, deadline));
    const std::string& address = addresses[attempt_number % addresses.size()];
    struct Attempt {
      Promise<void> opened;
      std::shared_ptr<Supervisor> supervisor;  ///< used by the loop's thread, from on_open on
      /// The caller's, once `opened` is complete. A caller that gave up does not take it, and the
      /// supervisor holds the link, whose events hold the attempt.
      std::weak_ptr<Supervisor> for_caller;
    };
    AgentReady introduction = hello;
    if (hello.address.empty()) {
      TROUPE_TRY(introduction.address, local_address_towards(address));
    }
    auto attempt = std::make_shared<Attempt>();
    LinkEvents events{
        [this, attempt, introduction](const std::shared_ptr<TlsLink>& link) {
          auto sent = link->send(LinkFrame(encode_message(introduction)));  // before any heartbeat
          attempt->supervisor = supervise(link);
          attempt->for_caller = attempt->supervisor;
          attempt->opened.complete(std::move(sent));
        },
        [attempt](const std::shared_ptr<TlsLink>&, std::vector<std::byte>& frame) {
          attempt->supervisor->on_frame(std::move(frame));
        },
        [attempt](const std::shared_ptr<TlsLink>&, const Error& why) {
          attempt->opened.complete(why);
          // The supervisor holds the link, whose events hold the attempt.
          const auto supervisor = std::exchange(attempt->supervisor, nullptr);
          if (supervisor) supervisor->on_closed(why);
        }};
    TROUPE_TRY(auto link, loop_->connect(address, port, {agent_role, hello.node}, driver_peer(),
                                         key, std::move(events)));
    auto result = attempt->opened.future();
    if (auto opened = get_by(result, deadline); !opened.ok()) {
      link->close();
      return opened;
    }
    link_ = std::move(link);
    supervisor_ = attempt->for_caller.lock();  // empty if the link has ended since
    return {};
  }

  std::shared_ptr<Supervisor> supervise(const std::shared_ptr<TlsLink>& link) {
    SupervisorEvents events{[this](ControlMessage message) {
                              if (!is_stopping_) events_.on_message(std::move(message));
                            },
                            [this](bool, const Error& why) {
                              if (!is_stopping_) events_.on_lost(why);
                            }};
    return std::make_shared<Supervisor>(caf_, link, ControlSession::with_driver(),
                                        Supervisor::Heartbeats::answered, std::move(events));
  }

  const Events events_;
  std::atomic<bool> is_stopping_ = false;
  std::shared_ptr<Supervisor> supervisor_;
  std::shared_ptr<TlsLink> link_;
  std::unique_ptr<LinkLoop> loop_;
  CafSystem caf_;  ///< its destructor waits for the actor, which uses the members above
};

}  // namespace

Result<std::unique_ptr<ControlClient>> ControlClient::connect(
    const Key& key, const std::string& host, std::uint16_t port, const AgentReady& hello,
    Events events, std::chrono::milliseconds timeout, const KeepGoing& keep_going) {
  const PromptThreads heartbeats_are_in_time;
  auto client = std::make_unique<Client>(std::move(events));
  TROUPE_CHECK(client->connect(key, host, port, hello, timeout, keep_going));
  return std::unique_ptr<ControlClient>(std::move(client));
}

}  // namespace troupe
