#include "runtime/channel/channel.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include "runtime/base/blocking.hpp"
#include "runtime/channel/curve.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

namespace {

constexpr std::size_t alignment = 8;
constexpr std::string_view ipv6_prefix = "tcp://[";

struct CloseContext {
  void operator()(void* context) const { zmq_ctx_term(context); }
};
struct CloseSocket {
  void operator()(void* socket) const { zmq_close(socket); }
};
using Context = std::unique_ptr<void, CloseContext>;
using Socket = std::unique_ptr<void, CloseSocket>;

Error zmq_error(std::string_view what) {
  const int code = zmq_errno();
  const ErrorCode kind =
      code == EINVAL || code == ENODEV || code == ENOENT || code == EPROTONOSUPPORT
          ? ErrorCode::invalid_argument
      : code == EMFILE || code == ENOMEM ? ErrorCode::resource_exhausted
                                         : ErrorCode::io;
  return fail(kind, "channel: {}: {}", what, zmq_strerror(code));
}

Result<void> set(void* socket, int option, int value) {
  if (zmq_setsockopt(socket, option, &value, sizeof value) == 0) return {};
  return zmq_error(fmt::format("cannot set socket option {}", option));
}

/// Makes a unix socket accept connections of one process only, or of this user.
Result<void> filter_peers(void* socket, int peer_pid) {
  const auto pid = static_cast<pid_t>(peer_pid);
  const uid_t uid = ::geteuid();
  const int set = peer_pid != 0 ? zmq_setsockopt(socket, ZMQ_IPC_FILTER_PID, &pid, sizeof pid)
                                : zmq_setsockopt(socket, ZMQ_IPC_FILTER_UID, &uid, sizeof uid);
  if (set == 0) return {};
  return zmq_error("cannot choose whose connections to take");
}

Result<std::string> abstract_address() {
  std::array<std::byte, 16> random;
  TROUPE_CHECK(random_bytes(random));
  return "ipc://@troupe-" + to_hex(random);
}

/// Lets a socket use IPv6 addresses. Others stay without it: it would make libzmq take an
/// interface's IPv6 address where it is given by its name.
Result<void> allow_ipv6(void* socket) { return set(socket, ZMQ_IPV6, 1); }

/// "tcp://eth0", "tcp://10.0.0.1", "tcp://[fd00::1]".
std::string tcp_address(const std::string& interface) {
  const bool is_ipv6 = interface.find(':') != interface.npos;
  return is_ipv6 ? "tcp://[" + interface + "]" : "tcp://" + interface;
}

/// Listens at `address` ("tcp://eth0") on the first free of the ports.
Result<void> bind_in(PortRange ports, void* socket, const std::string& address) {
  return take_first(
      ports, "channel: cannot listen on " + address, [&](std::uint16_t port) -> Result<bool> {
        const auto wanted = fmt::format("{}:{}", address, port == 0 ? "*" : std::to_string(port));
        if (zmq_bind(socket, wanted.c_str()) == 0) return true;
        if (zmq_errno() == EADDRINUSE) return false;
        return zmq_error(fmt::format("cannot listen on {}", wanted));
      });
}

}  // namespace

/// Sockets are closed before their context, whose destruction waits for them.
struct Channel::State {
  Context context;
  Socket pipe;
  std::unique_ptr<CurveGate> gate;  // the listener's only: admits the one connector key
  UniqueFd interrupted;             // an eventfd, readable while an interrupt is pending
  std::string address;

  static Result<std::unique_ptr<State>> create();
  Result<void> wait(short events, Deadline& deadline, std::string_view what);
  bool take_interrupt();
};

Result<std::unique_ptr<Channel::State>> Channel::State::create() {
  auto state = std::make_unique<State>();
  state->interrupted.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state->interrupted) return fail_errno(errno, "channel: cannot make an eventfd");
  state->context.reset(zmq_ctx_new());
  if (!state->context) return zmq_error("cannot make a context");
  state->pipe.reset(zmq_socket(state->context.get(), ZMQ_PAIR));
  if (!state->pipe) return zmq_error("cannot make a socket");
  void* pipe = state->pipe.get();
  TROUPE_CHECK(set(pipe, ZMQ_LINGER, 0));
  TROUPE_CHECK(set(pipe, ZMQ_SNDHWM, queue_limit));
  TROUPE_CHECK(set(pipe, ZMQ_RCVHWM, queue_limit));
  TROUPE_CHECK(set(pipe, ZMQ_IMMEDIATE, 1));
  TROUPE_CHECK(set(pipe, ZMQ_RECONNECT_IVL, 20));
  TROUPE_CHECK(set(pipe, ZMQ_RECONNECT_IVL_MAX, 500));
  TROUPE_CHECK(set(pipe, ZMQ_HANDSHAKE_IVL, static_cast<int>(handshake_timeout.count())));
  const std::int64_t limit = max_message_bytes;
  if (zmq_setsockopt(pipe, ZMQ_MAXMSGSIZE, &limit, sizeof limit) != 0) {
    return zmq_error("cannot bound the size of messages");
  }
  return state;
}

// Waits until the socket has one of `events`, admitting connectors meanwhile.
Result<void> Channel::State::wait(short events, Deadline& deadline, std::string_view what) {
  std::array<zmq_pollitem_t, 3> items{{{pipe.get(), 0, events, 0},
                                       {nullptr, interrupted.get(), ZMQ_POLLIN, 0},
                                       {gate ? gate->socket() : nullptr, 0, ZMQ_POLLIN, 0}}};
  const int count = gate ? 3 : 2;
  const BlockingScope waits;
  while (true) {
    const auto left = deadline.left();
    const auto slice = std::min<Deadline::Clock::duration>(left, Deadline::slice);
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(slice).count();
    const int ready = zmq_poll(items.data(), count, milliseconds);
    if (ready < 0 && zmq_errno() != EINTR) return zmq_error(what);
    if (ready > 0) {
      if (gate && (items[2].revents & ZMQ_POLLIN) != 0) gate->answer();
      if ((items[0].revents & events) != 0) return {};
      if (take_interrupt()) return fail(ErrorCode::cancelled, "channel: {}: interrupted", what);
    }
    if (left == left.zero()) {
      return fail(ErrorCode::timed_out, "channel: {} ({}): the peer did not come in time", what,
                  address);
    }
  }
}

bool Channel::State::take_interrupt() {
  std::uint64_t count = 0;
  return ::read(interrupted.get(), &count, sizeof count) == sizeof count;
}

Channel::Channel(std::unique_ptr<State> state) : state_(std::move(state)) {}
Channel::Channel(Channel&&) noexcept = default;
Channel& Channel::operator=(Channel&&) noexcept = default;
Channel::~Channel() = default;

const std::string& Channel::address() const { return state_->address; }

Result<Channel> Channel::listen(const ChannelKeys& keys, const ChannelEndpoint& endpoint) {
  TROUPE_TRY(auto state, State::create());
  TROUPE_TRY(state->gate, CurveGate::open(state->context.get(), keys.connector));
  TROUPE_CHECK(make_curve_server(state->pipe.get(), keys.listener));
  std::string wanted = tcp_address(endpoint.interface);
  if (endpoint.interface.empty()) {
    TROUPE_TRY(wanted, abstract_address());
    TROUPE_CHECK(filter_peers(state->pipe.get(), endpoint.peer_pid));
    if (zmq_bind(state->pipe.get(), wanted.c_str()) != 0) {
      return zmq_error(fmt::format("cannot listen on {}", wanted));
    }
  } else {
    if (wanted.starts_with(ipv6_prefix)) TROUPE_CHECK(allow_ipv6(state->pipe.get()));
    TROUPE_CHECK(bind_in(endpoint.ports, state->pipe.get(), wanted));
  }
  std::array<char, 256> bound{};
  std::size_t size = bound.size();
  if (zmq_getsockopt(state->pipe.get(), ZMQ_LAST_ENDPOINT, bound.data(), &size) != 0) {
    return zmq_error(fmt::format("no address after listening on {}", wanted));
  }
  state->address = endpoint.interface.empty() ? wanted : std::string(bound.data());
  return Channel(std::move(state));
}

Result<Channel> Channel::connect(const ChannelKeys& keys, const std::string& address) {
  TROUPE_TRY(auto state, State::create());
  TROUPE_CHECK(make_curve_client(state->pipe.get(), keys.connector, keys.listener));
  if (address.starts_with(ipv6_prefix)) TROUPE_CHECK(allow_ipv6(state->pipe.get()));
  if (zmq_connect(state->pipe.get(), address.c_str()) != 0) {
    return zmq_error(fmt::format("cannot connect to '{}'", address));
  }
  state->address = address;
  return Channel(std::move(state));
}

Result<void> Channel::send(std::span<const std::byte> bytes, Deadline deadline) {
  if (bytes.size() > max_message_bytes) {
    return fail(ErrorCode::invalid_argument, "channel: a message of {} bytes, the limit is {}",
                bytes.size(), max_message_bytes);
  }
  while (zmq_send(state_->pipe.get(), bytes.data(), bytes.size(), ZMQ_DONTWAIT) < 0) {
    if (zmq_errno() != EAGAIN && zmq_errno() != EINTR) return zmq_error("send");
    TROUPE_CHECK(state_->wait(ZMQ_POLLOUT, deadline, "send"));
  }
  return {};
}

Result<Message> Channel::receive(Deadline deadline) {
  auto frame = std::make_unique<zmq_msg_t>();
  zmq_msg_init(frame.get());
  Message::Owner owner(frame.release(), [](void* held) {
    auto* message = static_cast<zmq_msg_t*>(held);
    zmq_msg_close(message);
    delete message;
  });
  auto* message = static_cast<zmq_msg_t*>(owner.get());
  while (zmq_msg_recv(message, state_->pipe.get(), ZMQ_DONTWAIT) < 0) {
    if (zmq_errno() != EAGAIN && zmq_errno() != EINTR) return zmq_error("receive");
    TROUPE_CHECK(state_->wait(ZMQ_POLLIN, deadline, "receive"));
  }
  const std::span bytes(static_cast<const std::byte*>(zmq_msg_data(message)),
                        zmq_msg_size(message));
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignment == 0) {
    return Message(std::move(owner), bytes);
  }
  auto* copy = new std::byte[bytes.size()];  // operator new aligns to 16
  std::memcpy(copy, bytes.data(), bytes.size());
  return Message(Message::Owner(copy, [](void* held) { delete[] static_cast<std::byte*>(held); }),
                 {copy, bytes.size()});
}

void Channel::interrupt() {
  // Fails only if the counter is full, and then an interrupt is pending already.
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(state_->interrupted.get(), &one, sizeof one);
}

}  // namespace troupe
