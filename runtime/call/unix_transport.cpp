#include "runtime/call/unix_transport.hpp"

#include <atomic>
#include <cerrno>
#include <map>
#include <thread>
#include <unordered_map>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "runtime/base/log.hpp"
#include "runtime/call/unix_link.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

Result<std::pair<sockaddr_un, socklen_t>> abstract_address(const std::string& endpoint) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (endpoint.empty() || endpoint.size() > sizeof address.sun_path - 1) {
    return fail(ErrorCode::invalid_argument, "'{}' cannot name a socket", endpoint);
  }
  std::memcpy(address.sun_path + 1, endpoint.data(), endpoint.size());
  return std::pair(address,
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + endpoint.size()));
}

Result<void> check_peer_uid(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return fail_errno(errno, "cannot read the peer's credentials");
  }
  if (peer.uid != ::geteuid()) {
    return fail(ErrorCode::permission_denied, "the peer's uid is {}, ours {}", peer.uid,
                ::geteuid());
  }
  return {};
}

Result<UniqueFd> connect_socket(const std::string& endpoint) {
  TROUPE_TRY(auto address, abstract_address(endpoint));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(errno, "cannot make a socket");
  // connect waits only while the peer's queue of new connections is full.
  timeval limit{1, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address.first), address.second) != 0) {
    if (errno == ECONNREFUSED) {
      return fail(ErrorCode::peer_died, "nobody listens at '{}' any more", endpoint);
    }
    return fail_errno(errno, fmt::format("cannot connect to '{}'", endpoint));
  }
  TROUPE_CHECK(check_peer_uid(socket.get()));
  return socket;
}

}  // namespace

/// The thread, its epoll set, links and timers. Shared with tasks that may outlive the transport.
class UnixTransport::Loop : public std::enable_shared_from_this<UnixTransport::Loop> {
 public:
  explicit Loop(Options options) : options_(std::move(options)) {}

  Result<void> start(TransportEvents events);
  void stop();
  std::shared_ptr<Link> connect(const std::string& endpoint);
  void run_after(std::chrono::milliseconds delay, std::function<void()> task);
  bool on_own_thread() const { return std::this_thread::get_id() == thread_id_; }
  const Options& options() const { return options_; }

 private:
  void run();
  int run_due_timers();
  void accept_all();
  void adopt(UniqueFd socket, const std::shared_ptr<UnixLink>& link);
  void on_event(int fd, std::uint32_t events);
  void drop(const std::shared_ptr<UnixLink>& link, const Error& why);

  const Options options_;
  TransportEvents events_;
  UniqueFd epoll_, wake_, listener_;
  std::thread thread_;
  std::thread::id thread_id_;
  std::atomic<bool> stopping_ = false;
  std::unordered_map<int, std::shared_ptr<UnixLink>> links_;  ///< by descriptor; own thread only
  std::vector<std::byte> scratch_ = std::vector<std::byte>(std::size_t{256} << 10);

  std::mutex mutex_;
  std::multimap<Clock::time_point, std::function<void()>> timers_;
};

Result<void> UnixTransport::Loop::start(TransportEvents events) {
  events_ = std::move(events);
  TROUPE_TRY(auto address, abstract_address(options_.endpoint));
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!epoll_ || !wake_ || !listener_)
    return fail_errno(errno, "cannot make the call plane's sockets");
  if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address.first), address.second) != 0 ||
      ::listen(listener_.get(), SOMAXCONN) != 0) {
    return fail_errno(errno,
                      fmt::format("cannot listen at the abstract socket '{}'", options_.endpoint));
  }
  for (const int fd : {wake_.get(), listener_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return fail_errno(errno, "epoll_ctl");
  }
  std::atomic<bool> ready = false;
  thread_ = std::thread([this, &ready, self = shared_from_this()] {
    thread_id_ = std::this_thread::get_id();
    ready = true;
    ready.notify_one();
    run();
  });
  ready.wait(false);
  return {};
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
  if (!on_own_thread()) ::eventfd_write(wake_.get(), 1);
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
  while (!stopping_) {
    const int count = ::epoll_wait(epoll_.get(), ready, 64, run_due_timers());
    for (int i = 0; i < count && !stopping_; ++i) {
      if (ready[i].data.fd == wake_.get()) {
        eventfd_t ignored = 0;
        ::eventfd_read(wake_.get(), &ignored);
      } else if (ready[i].data.fd == listener_.get()) {
        accept_all();
      } else {
        on_event(ready[i].data.fd, ready[i].events);
      }
    }
  }
  const Error why = fail(ErrorCode::cancelled, "this process is shutting down");
  for (auto& [fd, link] : links_) link->finish(why);
  links_.clear();
  listener_.reset();
  std::lock_guard lock(mutex_);
  timers_.clear();
}

void UnixTransport::Loop::accept_all() {
  while (true) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    if (auto checked = check_peer_uid(socket.get()); !checked.ok()) {
      log::warning("refused a connection: {}", checked.error().message);
      continue;
    }
    auto handshake = Handshake::create(Handshake::Role::server, options_.key, options_.identity);
    if (!handshake.ok()) return log::error("{}", handshake.error().message);
    adopt(std::move(socket),
          std::make_shared<UnixLink>(options_, *std::move(handshake), thread_id_));
  }
}

void UnixTransport::Loop::adopt(UniqueFd socket, const std::shared_ptr<UnixLink>& link) {
  const int fd = socket.get();
  links_[fd] = link;
  if (auto attached = link->attach(std::move(socket), epoll_.get()); !attached.ok()) {
    return drop(link, attached.error());
  }
  run_after(options_.handshake_timeout, [this, weak = std::weak_ptr(link)] {
    auto slow = weak.lock();
    if (slow && slow->fd() >= 0 && !slow->established()) {
      drop(slow, fail(ErrorCode::timeout, "no handshake within {} ms",
                      options_.handshake_timeout.count()));
    }
  });
}

std::shared_ptr<Link> UnixTransport::Loop::connect(const std::string& endpoint) {
  auto handshake = Handshake::create(Handshake::Role::client, options_.key, options_.identity);
  if (!handshake.ok()) return nullptr;
  auto link = std::make_shared<UnixLink>(options_, *std::move(handshake), thread_id_);
  run_after(std::chrono::milliseconds(0), [this, link, endpoint] {
    auto socket = connect_socket(endpoint);
    if (!socket.ok()) return drop(link, socket.error());
    adopt(*std::move(socket), link);
  });
  return link;
}

void UnixTransport::Loop::on_event(int fd, std::uint32_t events) {
  const auto found = links_.find(fd);
  if (found == links_.end()) return;
  const std::shared_ptr<UnixLink> link = found->second;
  if ((events & EPOLLOUT) != 0) {
    if (auto written = link->on_writable(); !written.ok()) return drop(link, written.error());
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    auto read = link->on_readable(scratch_, [&](Bytes& frame) { events_.on_frame(link, frame); });
    if (!read.ok()) drop(link, read.error());
  }
}

void UnixTransport::Loop::drop(const std::shared_ptr<UnixLink>& link, const Error& why) {
  if (link->fd() >= 0) links_.erase(link->fd());
  link->finish(why);
  if (why.code == ErrorCode::permission_denied || why.code == ErrorCode::unsupported) {
    log::warning("call plane: {}", why.message);
  }
  events_.on_closed(link, why);
}

UnixTransport::UnixTransport(Options options) : loop_(std::make_shared<Loop>(std::move(options))) {}
UnixTransport::~UnixTransport() { loop_->stop(); }
Result<void> UnixTransport::start(TransportEvents events) {
  return loop_->start(std::move(events));
}
const std::string& UnixTransport::endpoint() const { return loop_->options().endpoint; }
std::shared_ptr<Link> UnixTransport::connect(const std::string& endpoint) {
  return loop_->connect(endpoint);
}
void UnixTransport::run_after(std::chrono::milliseconds delay, std::function<void()> task) {
  loop_->run_after(delay, std::move(task));
}
bool UnixTransport::on_own_thread() const { return loop_->on_own_thread(); }
void UnixTransport::stop() { loop_->stop(); }

}  // namespace troupe
