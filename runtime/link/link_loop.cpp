#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "runtime/base/log.hpp"
#include "runtime/base/refusal_log.hpp"
#include "runtime/link/connection.hpp"
#include "runtime/link/link.hpp"
#include "runtime/link/tcp_socket.hpp"
#include "runtime/link/turns.hpp"
#include "runtime/process/acceptor.hpp"
#include "runtime/process/open_files.hpp"
#include "runtime/process/strangers.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds look_at_hosts{1000};

LinkLimits bounded(LinkLimits limits) {
  limits.max_strangers = std::min<std::size_t>(limits.max_strangers,
                                               std::max<std::uint64_t>(1, open_file_limit() / 4));
  return limits;
}

/// True if what a stranger has sent may begin a TLS handshake record (RFC 8446, 5.1); nothing if it
/// has sent nothing yet.
std::optional<bool> begins_like_tls(int socket) {
  unsigned char first[2];
  const ssize_t count = ::recv(socket, first, sizeof first, MSG_PEEK | MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  return count > 0 && first[0] == 0x16 && (count == 1 || first[1] == 0x03);
}

struct Listener {
  std::string name;
  Acceptor acceptor;
  LinkLoop::KeyOf key_of;
  std::shared_ptr<const LinkEvents> events;
  Strangers strangers;
  RefusalLog refusals;
  bool is_polled = true;
};

/// An accepted socket that has not sent anything.
struct Silent {
  UniqueFd socket;
  Listener* listener;
};

class Loop final : public std::enable_shared_from_this<Loop> {
 public:
  explicit Loop(LinkLimits limits)
      : limits_(bounded(limits)),
        outgoing_(std::numeric_limits<std::size_t>::max(), limits.handshake_timeout) {}

  Result<void> start();
  void stop();
  Result<std::uint16_t> listen(const std::string& name, const std::string& address,
                               LinkLoop::KeyOf key_of, LinkEvents events, PortRange ports);
  Result<std::shared_ptr<TlsLink>> connect(TcpAddress address, const LinkPeer& self,
                                           const LinkPeer& peer, const Key& key, LinkEvents events);
  void begin_turn() { turns_.begin(); }
  /// Does what is to be done, or waits for it until `until`.
  void step(Clock::time_point until);
  void end_turn();

 private:
  using Task = std::function<void()>;
  /// Queues a task; false if the loop has stopped, and then the task is not run.
  bool post(Task task);
  void run();
  void run_tasks();
  int milliseconds_to_wait(Clock::time_point until);
  void on_event(int fd);
  void on_time(Clock::time_point now);
  void accept(Listener& listener);
  void on_first_bytes(int fd);
  void refuse(Listener& listener, int fd, std::string_view why);
  Connection::Requests requests();
  void turn(const std::shared_ptr<Connection>& connection);
  void flush(const std::shared_ptr<Connection>& connection);
  void go_on(const std::shared_ptr<Connection>& connection, const Result<bool>& more);
  void look_for_hosts(Clock::time_point now);
  void drop(const std::shared_ptr<Connection>& connection, const Error& why);
  bool poll(int operation, int fd, std::uint32_t events);

  const LinkLimits limits_;
  std::unique_ptr<TlsContext> tls_;
  UniqueFd epoll_, wake_;
  std::thread thread_;
  Turns turns_;
  std::atomic<bool> stopping_ = false;

  std::mutex mutex_;
  std::vector<Task> tasks_;
  bool stopped_ = false;

  // Of the thread that runs the loop; keyed by descriptor.
  std::map<int, Listener> listeners_;
  std::unordered_map<int, Silent> silent_;
  std::unordered_map<int, std::shared_ptr<Connection>> connections_;
  std::unordered_map<int, Listener*> listener_of_;  ///< for connections that are not open yet
  Strangers outgoing_;                              ///< outgoing connections that are not open yet
  std::set<std::shared_ptr<Connection>> eager_;     ///< connections that can go on at once
  std::set<int> writing_;                           ///< connections that wait until they can write
  /// When acknowledgements are looked at; never while nothing is under way.
  Clock::time_point hosts_due_ = Clock::time_point::max();
};

Result<void> Loop::start() {
  TROUPE_TRY(tls_, TlsContext::create());
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !wake_ || !poll(EPOLL_CTL_ADD, wake_.get(), EPOLLIN)) {
    return fail_errno(errno, "cannot make an epoll set");
  }
  turns_.set_wake_fd(wake_.get());
  thread_ = std::thread([this] { run(); });
  return {};
}

void Loop::stop() {
  if (!thread_.joinable() || stopping_.exchange(true)) return;
  turns_.stop();
  thread_.join();
}

bool Loop::poll(int operation, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return ::epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

bool Loop::post(Task task) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return false;
    tasks_.push_back(std::move(task));
  }
  turns_.wake();
  return true;
}

void Loop::run_tasks() {
  std::vector<Task> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (auto& task : tasks) task();
}

void Loop::run() {
  while (turns_.begin_own()) {
    while (!turns_.must_give_way()) step(Clock::time_point::max());
    turns_.end_own();
  }
  turns_.begin();
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  run_tasks();  // requested links get their on_closed, too
  for (const auto& [fd, connection] : std::exchange(connections_, {})) {
    connection->finish(fail(ErrorCode::cancelled, "this process closes its links"));
  }
  silent_.clear();
  listeners_.clear();
  turns_.end(false);
}

void Loop::step(Clock::time_point until) {
  run_tasks();
  std::array<epoll_event, 64> ready;
  const int count = ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()),
                                 milliseconds_to_wait(until));
  for (int i = 0; i < count; ++i) on_event(ready[static_cast<std::size_t>(i)].data.fd);
  for (const auto& connection : std::exchange(eager_, {})) turn(connection);
  on_time(Clock::now());
}

void Loop::end_turn() {
  run_tasks();
  turns_.end(!eager_.empty() || !writing_.empty());
  bool is_late;  // posted since run_tasks(), and so woke nobody
  {
    std::lock_guard lock(mutex_);
    is_late = !tasks_.empty();
  }
  if (is_late) turns_.wake();
}

int Loop::milliseconds_to_wait(Clock::time_point until) {
  if (!eager_.empty()) return 0;
  {
    std::lock_guard lock(mutex_);
    if (!tasks_.empty()) return 0;  // posted by events of this thread, which does not wake itself
  }
  const auto now = Clock::now();
  auto next = std::min({until, outgoing_.due(), hosts_due_});
  for (const auto& [fd, listener] : listeners_) {
    next = std::min({next, listener.strangers.due(), listener.refusals.due()});
    if (listener.acceptor.rests(now)) next = std::min(next, listener.acceptor.rests_until());
  }
  if (next == Clock::time_point::max()) return -1;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
  return static_cast<int>(std::clamp<std::int64_t>(wait, 0, 60'000));
}

void Loop::on_event(int fd) {
  if (fd == wake_.get()) {
    eventfd_t ignored = 0;
    ::eventfd_read(wake_.get(), &ignored);
  } else if (const auto listener = listeners_.find(fd); listener != listeners_.end()) {
    accept(listener->second);
  } else if (silent_.contains(fd)) {
    on_first_bytes(fd);
  } else if (const auto found = connections_.find(fd); found != connections_.end()) {
    turn(std::shared_ptr<Connection>(found->second));
  }
}

void Loop::on_time(Clock::time_point now) {
  for (auto& [fd, listener] : listeners_) {
    while (const auto slow = listener.strangers.overdue(now)) refuse(listener, *slow, "too slow");
    if (!listener.is_polled && !listener.acceptor.rests(now)) {
      listener.is_polled = poll(EPOLL_CTL_MOD, fd, EPOLLIN);
    }
    if (const std::string line = listener.refusals.take_line(now); !line.empty()) {
      log::warning("{}", line);
    }
  }
  while (const auto slow = outgoing_.overdue(now)) {
    const auto connection = connections_.at(*slow);  // drop() takes it out of the map
    drop(connection, fail(ErrorCode::timed_out, "no handshake within {} ms",
                          limits_.handshake_timeout.count()));
  }
  if (now >= hosts_due_) look_for_hosts(now);
}

/// Drops the links to hosts that are gone.
void Loop::look_for_hosts(Clock::time_point now) {
  bool is_any_under_way = false;
  std::vector<std::shared_ptr<Connection>> gone;
  for (const auto& [fd, connection] : connections_) {
    if (!connection->is_open()) continue;  // its handshake has a timeout
    const auto silence = connection->unacknowledged(now);
    if (!silence) continue;
    is_any_under_way = true;
    if (*silence >= limits_.host_timeout) gone.push_back(connection);
  }
  hosts_due_ = is_any_under_way ? now + look_at_hosts : Clock::time_point::max();
  for (const auto& connection : gone) {
    drop(connection, fail(ErrorCode::peer_died, "the host of {} has acknowledged nothing for {} ms",
                          connection->peer().text(), limits_.host_timeout.count()));
  }
}

void Loop::accept(Listener& listener) {
  const auto now = Clock::now();
  while (UniqueFd socket = listener.acceptor.accept(now)) {
    const int fd = socket.get();
    tune(fd);
    if (!poll(EPOLL_CTL_ADD, fd, EPOLLIN)) continue;
    silent_.emplace(fd, Silent{std::move(socket), &listener});
    if (const auto dropped = listener.strangers.add(fd, now)) {
      refuse(listener, *dropped, silent_.contains(*dropped) ? "silent" : "too slow");
    }
  }
  listener.refusals.note("without a descriptor", listener.acceptor.take_turned_away());
  if (listener.acceptor.rests(now)) {
    listener.is_polled = !poll(EPOLL_CTL_MOD, listener.acceptor.fd(), 0);
  }
}

void Loop::on_first_bytes(int fd) {
  Listener& listener = *silent_.at(fd).listener;
  const auto is_tls = begins_like_tls(fd);
  if (!is_tls) return;  // the event was that of a socket before, whose number this one has
  if (!*is_tls) return refuse(listener, fd, "no TLS");
  listener.strangers.mark_speaking(fd);
  auto session =
      TlsSession::accept(*tls_, fd, [&listener](std::string_view identity) -> std::optional<Key> {
        const auto peer = LinkPeer::parse(identity);
        if (!peer.ok()) return std::nullopt;
        return listener.key_of(*peer);
      });
  if (!session.ok()) return refuse(listener, fd, "no memory");
  auto connection = std::make_shared<Connection>(limits_, requests(), listener.events, LinkPeer{});
  connection->attach(std::move(silent_.at(fd).socket), *std::move(session));
  silent_.erase(fd);
  connections_.emplace(fd, connection);
  listener_of_.emplace(fd, &listener);
  turn(connection);
}

/// Drops a connection that has not authenticated.
void Loop::refuse(Listener& listener, int fd, std::string_view why) {
  listener.refusals.note(why);
  listener.strangers.remove(fd);
  listener_of_.erase(fd);
  silent_.erase(fd);
  writing_.erase(fd);
  if (auto node = connections_.extract(fd); !node.empty()) {
    node.mapped()->finish(fail(ErrorCode::permission_denied, "{}", why));
  }
}

Connection::Requests Loop::requests() {
  const auto weak = weak_from_this();
  const auto in_loop = [weak](std::function<void(Loop&)> task) {
    if (const auto loop = weak.lock()) {
      loop->post([raw = loop.get(), task = std::move(task)] { task(*raw); });
    }
  };
  return {[weak] {
            const auto loop = weak.lock();
            return loop && loop->turns_.is_mine();
          },
          [in_loop](std::shared_ptr<Connection> connection) {
            in_loop([connection = std::move(connection)](Loop& loop) { loop.flush(connection); });
          },
          [in_loop](std::shared_ptr<Connection> connection) {
            in_loop([connection = std::move(connection)](Loop& loop) {
              loop.drop(connection, fail(ErrorCode::cancelled, "this end closed the link"));
            });
          }};
}

void Loop::turn(const std::shared_ptr<Connection>& connection) {
  const int fd = connection->fd();
  if (fd < 0) return;
  const bool was_open = connection->is_open();
  const auto more = connection->on_ready();
  if (more.ok() && !was_open && connection->is_open()) {
    outgoing_.remove(fd);
    if (const auto node = listener_of_.extract(fd); !node.empty()) {
      node.mapped()->strangers.remove(fd);
    }
  }
  go_on(connection, more);
}

void Loop::flush(const std::shared_ptr<Connection>& connection) {
  if (connection->is_open() && connection->fd() >= 0) go_on(connection, connection->write());
}

/// Arranges what comes after a turn that ended with `more`.
void Loop::go_on(const std::shared_ptr<Connection>& connection, const Result<bool>& more) {
  if (!more.ok()) return drop(connection, more.error());
  if (*more) eager_.insert(connection);
  if (hosts_due_ == Clock::time_point::max()) hosts_due_ = Clock::now() + look_at_hosts;
  const int fd = connection->fd();
  const bool writes = connection->wants_to_write();
  if (writes == writing_.contains(fd)) return;
  if (writes) {
    writing_.insert(fd);
  } else {
    writing_.erase(fd);
  }
  poll(EPOLL_CTL_MOD, fd, writes ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void Loop::drop(const std::shared_ptr<Connection>& connection, const Error& why) {
  const int fd = connection->fd();
  if (const auto found = listener_of_.find(fd); found != listener_of_.end()) {
    return refuse(*found->second, fd, why.code == ErrorCode::peer_died ? "gone" : "no key");
  }
  outgoing_.remove(fd);
  connections_.erase(fd);
  eager_.erase(connection);
  writing_.erase(fd);
  connection->finish(why);
}

Result<std::uint16_t> Loop::listen(const std::string& name, const std::string& address,
                                   LinkLoop::KeyOf key_of, LinkEvents events, PortRange ports) {
  TROUPE_TRY(auto socket, listen_in(ports, name, address));
  TROUPE_TRY(const std::uint16_t port, port_of(socket.get()));
  const bool posted = post([this, name, key_of = std::move(key_of),
                            fd = std::make_shared<UniqueFd>(std::move(socket)),
                            shared = std::make_shared<const LinkEvents>(std::move(events))] {
    const int raw = fd->get();
    listeners_.emplace(raw, Listener{name, Acceptor(std::move(*fd)), key_of, shared,
                                     Strangers(limits_.max_strangers, limits_.handshake_timeout),
                                     RefusalLog(name)});
    poll(EPOLL_CTL_ADD, raw, EPOLLIN);
  });
  if (!posted) return fail(ErrorCode::cancelled, "the loop has stopped");
  return port;
}

Result<std::shared_ptr<TlsLink>> Loop::connect(TcpAddress address, const LinkPeer& self,
                                               const LinkPeer& peer, const Key& key,
                                               LinkEvents events) {
  UniqueFd socket(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail_errno(errno, "cannot make a socket");
  tune(socket.get());
  TROUPE_TRY(auto session, TlsSession::connect(*tls_, socket.get(), self.text(), key));
  if (::connect(socket.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
    return fail_errno(errno, fmt::format("cannot connect to {}", peer.text()));
  }
  auto connection = std::make_shared<Connection>(
      limits_, requests(), std::make_shared<const LinkEvents>(std::move(events)), peer);
  const int fd = socket.get();
  connection->attach(std::move(socket), std::move(session));
  const bool posted = post([this, connection, fd] {
    connections_.emplace(fd, connection);
    outgoing_.add(fd, Clock::now());
    writing_.insert(fd);
    // The socket becomes writable when it is connected, or has failed to.
    poll(EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT);
  });
  if (!posted) return fail(ErrorCode::cancelled, "the loop has stopped");
  return std::shared_ptr<TlsLink>(std::move(connection));
}

class LoopHandle final : public LinkLoop {
 public:
  explicit LoopHandle(std::shared_ptr<Loop> loop) : loop_(std::move(loop)) {}
  ~LoopHandle() override { loop_->stop(); }
  Result<std::uint16_t> listen(const std::string& name, const std::string& address, KeyOf key_of,
                               LinkEvents events, PortRange ports) override {
    return loop_->listen(name, address, std::move(key_of), std::move(events), ports);
  }
  Result<std::shared_ptr<TlsLink>> connect(const std::string& host, std::uint16_t port,
                                           const LinkPeer& self, const LinkPeer& peer,
                                           const Key& key, LinkEvents events) override {
    TROUPE_TRY(const TcpAddress address, look_up(host, port, false));
    return loop_->connect(address, self, peer, key, std::move(events));
  }
  void stop() override { loop_->stop(); }

 private:
  void begin_turn() override { loop_->begin_turn(); }
  void step(Clock::time_point until) override { loop_->step(until); }
  void end_turn() override { loop_->end_turn(); }

  std::shared_ptr<Loop> loop_;
};

}  // namespace

Result<std::unique_ptr<LinkLoop>> LinkLoop::start(LinkLimits limits) {
  auto loop = std::make_shared<Loop>(limits);
  TROUPE_CHECK(loop->start());
  return std::unique_ptr<LinkLoop>(std::make_unique<LoopHandle>(std::move(loop)));
}

}  // namespace troupe
