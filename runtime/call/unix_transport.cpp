#include "runtime/call/unix_transport.hpp"

#include <atomic>
#include <cerrno>
#include <map>
#include <thread>
#include <unordered_map>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "runtime/base/log.hpp"
#include "runtime/base/refusal_log.hpp"
#include "runtime/call/unix_link.hpp"
#include "runtime/call/unix_socket.hpp"
#include "runtime/process/acceptor.hpp"
#include "runtime/process/strangers.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds reconnect_pause{20};

}  // namespace

/// The thread, its epoll set, links and timers. Tasks that share it may outlive the transport.
class UnixTransport::Loop : public std::enable_shared_from_this<UnixTransport::Loop> {
 public:
  explicit Loop(Options options)
      : options_(std::move(options)),
        strangers_(options_.max_strangers, options_.handshake_timeout) {}

  Result<void> start(TransportEvents events);
  void stop();
  std::shared_ptr<Link> connect(const std::string& endpoint);
  void run_after(std::chrono::milliseconds delay, std::function<void()> task);
  std::thread::id own_thread() const { return thread_id_; }
  Result<void> flush(std::chrono::milliseconds timeout);
  void ask_key(const std::string& listener, CallKeys::Answer then);
  const Options& options() const { return options_; }

 private:
  /// How this process opened a link.
  struct Attempt {
    std::shared_ptr<UnixLink> link;
    std::string endpoint;
    Clock::time_point deadline;
    SecretKey key;
  };

  void run();
  Result<void> watch(int fd, std::uint32_t events, int operation);
  int run_due_timers();
  void accept_some();
  void accept_stranger(UniqueFd socket);
  void note_refusal(std::string_view why, std::size_t count = 1);
  void on_key(const std::shared_ptr<UnixLink>& link, const Result<Key>& key);
  void try_to_connect(const std::shared_ptr<UnixLink>& link);
  bool try_again(const std::shared_ptr<UnixLink>& link, const Error& why);
  Result<void> adopt(UniqueFd socket, Result<Handshake> handshake,
                     const std::shared_ptr<UnixLink>& link);
  void on_event(int fd, std::uint32_t events);
  void drop(const std::shared_ptr<UnixLink>& link, const Error& why);
  /// The links that are not over; on the own thread.
  std::vector<std::shared_ptr<UnixLink>> all_links() const;

  const Options options_;
  TransportEvents events_;
  UniqueFd epoll_, wake_;
  std::thread thread_;
  std::thread::id thread_id_;
  std::atomic<bool> stopping_ = false;
  const std::shared_ptr<UnsentLinks<UnixLink>> unsent_ = std::make_shared<UnsentLinks<UnixLink>>();

  // Used by the own thread only.
  std::unordered_map<int, std::shared_ptr<UnixLink>> links_;  ///< by descriptor
  std::unordered_map<const UnixLink*, Attempt> attempts_;
  std::optional<Acceptor> acceptor_;
  Strangers strangers_;
  RefusalLog refusals_{"call plane"};
  bool refusals_are_due_ = false;
  std::vector<std::byte> scratch_ = std::vector<std::byte>(std::size_t{256} << 10);

  std::mutex mutex_;
  std::multimap<Clock::time_point, std::function<void()>> timers_;
};

Result<void> UnixTransport::Loop::start(TransportEvents events) {
  events_ = std::move(events);
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !wake_) return fail_errno(errno, "cannot make the call plane's descriptors");
  TROUPE_TRY(auto listener, listen_at(options_.keys.name));
  acceptor_.emplace(std::move(listener));
  TROUPE_CHECK(watch(wake_.get(), EPOLLIN, EPOLL_CTL_ADD));
  TROUPE_CHECK(watch(acceptor_->fd(), EPOLLIN, EPOLL_CTL_ADD));
  std::atomic<bool> ready = false;
  try {
    thread_ = std::thread([this, &ready, self = shared_from_this()] {
      thread_id_ = std::this_thread::get_id();
      ready = true;
      ready.notify_one();
      run();
    });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::resource_exhausted, "cannot start the call plane's thread: {}",
                error.what());
  }
  ready.wait(false);
  return {};
}

Result<void> UnixTransport::Loop::watch(int fd, std::uint32_t events, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), operation, fd, &event) == 0) return {};
  return fail_errno(errno, "cannot watch a socket");
}

void UnixTransport::Loop::stop() {
  if (!thread_.joinable() || stopping_.exchange(true)) return;
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void UnixTransport::Loop::run_after(std::chrono::milliseconds delay, std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    timers_.emplace(Clock::now() + delay, std::move(task));
  }
  if (std::this_thread::get_id() != thread_id_) ::eventfd_write(wake_.get(), 1);
}

int UnixTransport::Loop::run_due_timers() {
  while (true) {
    std::function<void()> task;
    {
      std::lock_guard lock(mutex_);
      if (timers_.empty()) return -1;
      const auto wait = timers_.begin()->first - Clock::now();
      if (wait > Clock::duration::zero()) {
        return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count());
      }
      task = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
    }
    task();
  }
}

void UnixTransport::Loop::run() {
  epoll_event ready[64];
  int wait = run_due_timers();
  while (!stopping_) {
    const int count = ::epoll_wait(epoll_.get(), ready, 64, wait);
    for (int i = 0; i < count && !stopping_; ++i) {
      if (ready[i].data.fd == wake_.get()) {
        eventfd_t ignored = 0;
        ::eventfd_read(wake_.get(), &ignored);
      } else if (ready[i].data.fd == acceptor_->fd()) {
        accept_some();
      } else {
        on_event(ready[i].data.fd, ready[i].events);
      }
    }
    // After the sockets: input that arrived while this thread was late is handled before timers.
    wait = run_due_timers();
  }
  const Error why = fail(ErrorCode::cancelled, "this process is shutting down");
  for (const auto& link : all_links()) link->finish(why);
  links_.clear();
  attempts_.clear();
  acceptor_.reset();
  std::lock_guard lock(mutex_);
  timers_.clear();
}

void UnixTransport::Loop::accept_some() {
  const auto now = Clock::now();
  while (UniqueFd socket = acceptor_->accept(now)) accept_stranger(std::move(socket));
  note_refusal("no descriptors left", acceptor_->take_turned_away());
  if (!acceptor_->rests(now)) return;
  (void)watch(acceptor_->fd(), 0, EPOLL_CTL_MOD);
  run_after(std::chrono::ceil<std::chrono::milliseconds>(acceptor_->rests_until() - now),
            [this] { (void)watch(acceptor_->fd(), EPOLLIN, EPOLL_CTL_MOD); });
}

void UnixTransport::Loop::accept_stranger(UniqueFd socket) {
  if (!check_peer_uid(socket.get()).ok()) return note_refusal("another uid");
  if (const auto dropped = strangers_.add(socket.get(), Clock::now())) {
    note_refusal("too many strangers");
    if (const auto found = links_.find(*dropped); found != links_.end()) {
      drop(std::shared_ptr(found->second),
           fail(ErrorCode::resource_exhausted, "dropped for newer connections"));
    }
  }
  auto link = std::make_shared<UnixLink>(options_, thread_id_, unsent_);
  auto handshake = Handshake::as_server(options_.keys.listener.bytes, options_.identity);
  if (auto adopted = adopt(std::move(socket), std::move(handshake), link); !adopted.ok()) {
    drop(link, adopted.error());
  }
}

void UnixTransport::Loop::note_refusal(std::string_view why, std::size_t count) {
  refusals_.note(why, count);
  if (count == 0 || std::exchange(refusals_are_due_, true)) return;
  const auto wait = std::max(Clock::duration::zero(), refusals_.due() - Clock::now());
  run_after(std::chrono::ceil<std::chrono::milliseconds>(wait), [this] {
    refusals_are_due_ = false;
    if (const auto line = refusals_.take_line(Clock::now()); !line.empty())
      log::warning("{}", line);
  });
}

Result<void> UnixTransport::Loop::adopt(UniqueFd socket, Result<Handshake> handshake,
                                        const std::shared_ptr<UnixLink>& link) {
  if (!handshake.ok()) return handshake.error();
  const int fd = socket.get();
  links_[fd] = link;
  TROUPE_CHECK(link->attach(std::move(socket), *std::move(handshake), epoll_.get()));
  run_after(options_.handshake_timeout, [this, weak = std::weak_ptr(link)] {
    auto slow = weak.lock();
    if (slow && slow->fd() >= 0 && !slow->established()) {
      drop(slow, fail(ErrorCode::timed_out, "no handshake within {} ms",
                      options_.handshake_timeout.count()));
    }
  });
  return {};
}

std::shared_ptr<Link> UnixTransport::Loop::connect(const std::string& endpoint) {
  auto link = std::make_shared<UnixLink>(options_, thread_id_, unsent_);
  run_after(std::chrono::milliseconds(0), [this, link, endpoint] {
    attempts_[link.get()] = {link, endpoint, Clock::now() + options_.handshake_timeout, {}};
    ask_key(endpoint, [this, link](const Result<Key>& key) { on_key(link, key); });
  });
  return link;
}

void UnixTransport::Loop::ask_key(const std::string& listener, CallKeys::Answer then) {
  const auto once = std::make_shared<CallKeys::Answer>(std::move(then));
  const auto answer = [once](const Result<Key>& key) {
    if (const auto run = std::exchange(*once, nullptr)) run(key);
  };
  run_after(options_.handshake_timeout, [answer, limit = options_.handshake_timeout] {
    answer(fail(ErrorCode::timed_out, "no key of the call plane within {} ms", limit.count()));
  });
  options_.keys.ask(listener, [weak = weak_from_this(), answer](Result<Key> key) {
    const auto loop = weak.lock();
    if (!loop) return;
    loop->run_after(std::chrono::milliseconds(0), [answer, key = std::move(key)] { answer(key); });
  });
}

void UnixTransport::Loop::on_key(const std::shared_ptr<UnixLink>& link, const Result<Key>& key) {
  if (key.ok()) {
    attempts_[link.get()].key = SecretKey(*key);
    return try_to_connect(link);
  }
  attempts_[link.get()].deadline = {};
  drop(link, key.error());
}

void UnixTransport::Loop::try_to_connect(const std::shared_ptr<UnixLink>& link) {
  const Attempt& attempt = attempts_[link.get()];
  auto socket = connect_to(attempt.endpoint);
  if (socket.ok()) {
    auto adopted =
        adopt(*std::move(socket),
              Handshake::as_client(options_.keys.name, attempt.key.bytes, options_.identity), link);
    return adopted.ok() ? void() : drop(link, adopted.error());
  }
  // A listener that is gone does not come back; other causes may pass.
  if (socket.error().code != ErrorCode::resource_exhausted || !try_again(link, socket.error())) {
    attempts_[link.get()].deadline = {};
    drop(link, socket.error());
  }
}

/// True if an own link, whose handshake the peer has broken off, gets another attempt. Only the
/// handshake has been sent on it so far.
bool UnixTransport::Loop::try_again(const std::shared_ptr<UnixLink>& link, const Error& why) {
  const auto attempt = attempts_.find(link.get());
  const bool may_pass =
      why.code == ErrorCode::peer_died || why.code == ErrorCode::resource_exhausted;
  if (attempt == attempts_.end() || link->established() || !may_pass ||
      Clock::now() > attempt->second.deadline) {
    return false;
  }
  if (link->fd() >= 0) links_.erase(link->fd());
  link->detach();
  run_after(reconnect_pause, [this, link] { try_to_connect(link); });
  return true;
}

void UnixTransport::Loop::on_event(int fd, std::uint32_t events) {
  const auto found = links_.find(fd);
  if (found == links_.end()) return;
  const std::shared_ptr<UnixLink> link = found->second;
  if ((events & EPOLLOUT) != 0) link->on_writable();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  const bool was_stranger = !link->established();
  if (was_stranger) strangers_.mark_speaking(fd);
  auto read = link->on_readable(scratch_, [&](Bytes& frame) { events_.on_frame(link, frame); });
  if (was_stranger && link->established()) strangers_.remove(fd);
  if (!read.ok()) drop(link, read.error());
}

void UnixTransport::Loop::drop(const std::shared_ptr<UnixLink>& link, const Error& why) {
  if (try_again(link, why)) return;
  const bool accepted = attempts_.erase(link.get()) == 0;
  if (accepted && !link->established()) {
    if (why.code == ErrorCode::permission_denied) note_refusal("another job");
    if (why.code == ErrorCode::unsupported) note_refusal("another build");
    if (why.code == ErrorCode::timed_out) note_refusal("silent");
    if (why.code == ErrorCode::corrupt_data) note_refusal("no handshake");
  }
  if (link->fd() >= 0) {
    strangers_.remove(link->fd());
    links_.erase(link->fd());
  }
  link->finish(why);
  events_.on_closed(link, why);
}

std::vector<std::shared_ptr<UnixLink>> UnixTransport::Loop::all_links() const {
  std::vector<std::shared_ptr<UnixLink>> all;
  for (const auto& [fd, link] : links_) all.push_back(link);
  // Those that wait for their key or for another attempt have no descriptor.
  for (const auto& [key, attempt] : attempts_) {
    if (attempt.link->fd() < 0) all.push_back(attempt.link);
  }
  return all;
}

Result<void> UnixTransport::Loop::flush(std::chrono::milliseconds timeout) {
  Deadline deadline = deadline_in(timeout);
  for (const auto& link : unsent_->take_stock()) TROUPE_CHECK(link->wait_until_sent(deadline));
  return {};
}

UnixTransport::UnixTransport(Options options) : loop_(std::make_shared<Loop>(std::move(options))) {}
UnixTransport::~UnixTransport() { loop_->stop(); }
Result<void> UnixTransport::start(TransportEvents events) {
  return loop_->start(std::move(events));
}
const std::string& UnixTransport::endpoint() const { return loop_->options().keys.name; }
void UnixTransport::ask_key(const std::string& listener, CallKeys::Answer then) {
  loop_->ask_key(listener, std::move(then));
}
std::shared_ptr<Link> UnixTransport::connect(const std::string& endpoint) {
  return loop_->connect(endpoint);
}
void UnixTransport::run_after(std::chrono::milliseconds delay, std::function<void()> task) {
  loop_->run_after(delay, std::move(task));
}
std::thread::id UnixTransport::own_thread() const { return loop_->own_thread(); }
Result<void> UnixTransport::flush(std::chrono::milliseconds timeout) {
  return loop_->flush(timeout);
}
void UnixTransport::stop() { loop_->stop(); }

}  // namespace troupe
