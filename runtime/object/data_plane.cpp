#include "runtime/object/data_plane.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>
#include <vector>

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/blocking.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/read_all_at.hpp"
#include "runtime/link/link_peer.hpp"
#include "runtime/link/tcp_socket.hpp"
#include "runtime/process/acceptor.hpp"
#include "runtime/process/cpu_affinity.hpp"
#include "runtime/security/block_cipher.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

constexpr const char* reader_role = "object";
constexpr std::size_t max_connections = 64;
constexpr milliseconds handshake_limit{5000};
constexpr milliseconds idle_limit{10000};
constexpr milliseconds look_around{250};
/// As a connection that waits for its turn looks whether there is something left for it.
constexpr milliseconds look_for_work{10};

/// The key of a connection, which is not the one of the call plane.
Key data_key(const Key& pair) {
  static constexpr std::string_view purpose = "object plane";
  return hmac_sha256(pair, std::as_bytes(std::span(purpose)));
}

/// Objects go as blocks that are encrypted straight from their segment and decrypted where they
/// stay (BlockCipher), with a secret of the TLS session: its records of 16 KiB would be copied once
/// more at both ends, which took a sixth of the time.
constexpr std::size_t block_bytes = std::size_t{256} << 10;

/// What goes to the reader after the handshake.
Result<BlockSecret> block_secret(TlsSession& session) {
  BlockSecret secret;
  TROUPE_CHECK(session.export_secret("EXPORTER-troupe-object-key", secret.key));
  TROUPE_CHECK(session.export_secret("EXPORTER-troupe-object-iv", secret.iv));
  return secret;
}

struct PieceRequest {
  ObjectId object;
  std::uint64_t offset = 0, bytes = 0;
};
static_assert(sizeof(PieceRequest) == 32);
/// Comes before the bytes; 0 bytes: the object is not there.
struct PieceHeader {
  std::uint64_t bytes = 0;
};

/// False after the patience.
Result<bool> wait_for(int socket, short events, milliseconds patience,
                      const std::atomic<bool>& is_cancelled) {
  const BlockingScope waits;
  Deadline deadline(patience);
  while (!deadline.is_over()) {
    if (is_cancelled) return fail(ErrorCode::cancelled, "the object store stops");
    pollfd polled{socket, events, 0};
    const auto wait = std::min(look_around, std::chrono::ceil<milliseconds>(deadline.left()));
    if (::poll(&polled, 1, static_cast<int>(wait.count())) > 0) return true;
  }
  return false;
}

/// A TLS session whose calls wait, at most `patience` without progress. Once the handshake is over,
/// the listening end sends nothing but sealed blocks.
class Stream {
 public:
  Stream(UniqueFd socket, std::unique_ptr<TlsSession> session, milliseconds patience,
         const std::atomic<bool>& is_cancelled)
      : socket_(std::move(socket)),
        session_(std::move(session)),
        patience_(patience),
        is_cancelled_(is_cancelled) {}

  /// False if the other end does not take part within the patience, or before `is_needless`.
  template <class IsNeedless>
  Result<bool> handshake(IsNeedless is_needless, milliseconds slice = look_for_work) {
    Deadline deadline(patience_);
    while (true) {
      TROUPE_TRY(const bool is_done, session_->handshake());
      if (is_done) break;
      const short events = session_->wants_write() ? POLLOUT : POLLIN;
      while (true) {
        if (is_needless() || deadline.is_over()) return false;
        TROUPE_TRY(const bool has_come, wait_for(socket_.get(), events, slice, is_cancelled_));
        if (has_come) break;
      }
    }
    TROUPE_TRY(secret_, block_secret(*session_));
    return true;
  }
  Result<bool> handshake() {
    return handshake([] { return false; }, look_around);
  }
  const BlockSecret& secret() const { return secret_; }
  Result<void> read(std::span<std::byte> room) {
    while (!room.empty()) {
      TROUPE_TRY(const std::size_t got, session_->read(room));
      room = room.subspan(got);
      if (got == 0) TROUPE_CHECK(wait());
    }
    return {};
  }
  Result<void> write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      TROUPE_TRY(const std::size_t sent, session_->write(bytes));
      bytes = bytes.subspan(sent);
      if (sent == 0) TROUPE_CHECK(wait());
    }
    return {};
  }
  /// Past the session: bytes that are sealed.
  Result<void> send_sealed(std::span<const std::byte> bytes, bool more_follows) {
    while (!bytes.empty()) {
      const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more_follows ? MSG_MORE : 0);
      const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), flags);
      if (sent > 0) {
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
      } else {
        TROUPE_CHECK(check_progress(POLLOUT));
      }
    }
    return {};
  }
  Result<void> receive_sealed(std::span<std::byte> room) {
    while (!room.empty()) {
      const ssize_t got = ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
      if (got == 0) return fail(ErrorCode::peer_died, "the other end closed the connection");
      if (got > 0) {
        room = room.subspan(static_cast<std::size_t>(got));
      } else {
        TROUPE_CHECK(check_progress(POLLIN));
      }
    }
    return {};
  }
  void close() { session_->say_goodbye(); }

 private:
  /// After a call that has moved nothing.
  Result<void> check_progress(short events) {
    if (errno == EINTR) return {};
    if (errno == EAGAIN) return wait(events);
    return fail(ErrorCode::peer_died, "the connection is over: {}", std::strerror(errno));
  }
  Result<void> wait() { return wait(session_->wants_write() ? POLLOUT : POLLIN); }
  Result<void> wait(short events) {
    TROUPE_TRY(const bool has_come, wait_for(socket_.get(), events, patience_, is_cancelled_));
    if (has_come) return {};
    return fail(ErrorCode::timed_out, "nothing has come on the object plane for {} ms",
                patience_.count());
  }

  UniqueFd socket_;
  std::unique_ptr<TlsSession> session_;
  const milliseconds patience_;
  const std::atomic<bool>& is_cancelled_;
  BlockSecret secret_;
};

/// Sends objects as sealed blocks. Not synchronised.
class BlockWriter {
 public:
  explicit BlockWriter(Stream& stream) : stream_(stream), sealer_(stream.secret()) {}

  Result<void> write(std::span<const std::byte> bytes, bool more_follows = false) {
    while (!bytes.empty()) {
      const auto block = bytes.first(std::min(bytes.size(), block_bytes));
      bytes = bytes.subspan(block.size());
      sealed_.resize(std::max(sealed_.size(), block.size() + BlockCipher::tag_bytes));
      const auto sealed = std::span(sealed_).first(block.size() + BlockCipher::tag_bytes);
      sealer_.seal(block, sealed);
      TROUPE_CHECK(stream_.send_sealed(sealed, more_follows || !bytes.empty()));
    }
    return {};
  }

 private:
  Stream& stream_;
  BlockSealer sealer_;
  std::vector<std::byte> sealed_;
};

/// Reads what a BlockWriter has written in calls of the same sizes. Not synchronised.
class BlockReader {
 public:
  explicit BlockReader(Stream& stream) : stream_(stream), opener_(stream.secret()) {}

  Result<void> read(std::span<std::byte> room) {
    while (!room.empty()) {
      const auto block = room.first(std::min(room.size(), block_bytes));
      room = room.subspan(block.size());
      std::array<std::byte, BlockCipher::tag_bytes> tag;
      TROUPE_CHECK(stream_.receive_sealed(block));
      TROUPE_CHECK(stream_.receive_sealed(tag));
      TROUPE_CHECK(opener_.open(block, tag));
    }
    return {};
  }

 private:
  Stream& stream_;
  BlockOpener opener_;
};

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

Result<void> send_piece(BlockWriter& writer, const DataSource& source, std::uint64_t offset,
                        std::uint64_t bytes, std::vector<std::byte>& scratch) {
  if (!source.bytes.empty()) return writer.write(source.bytes.subspan(offset, bytes));
  scratch.resize(bytes);
  TROUPE_CHECK(read_all_at(source.file->get(), scratch, offset, "cannot read a spilled object"));
  return writer.write(scratch);
}

Result<UniqueFd> connect_socket(const DataPlace& to, const std::atomic<bool>& is_cancelled) {
  TROUPE_TRY(auto address, look_up(to.address, to.port, true));
  UniqueFd socket(::socket(address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(errno, "cannot make a socket");
  tune(socket.get());
  if (::connect(socket.get(), address.get(), address.length) == 0) return socket;
  if (errno != EINPROGRESS) return fail_errno(errno, "cannot connect to an object's holder");
  TROUPE_TRY(const bool is_answered,
             wait_for(socket.get(), POLLOUT, handshake_limit, is_cancelled));
  if (!is_answered) {
    return fail(ErrorCode::timed_out, "{}:{} does not answer", to.address, to.port);
  }
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return fail(ErrorCode::peer_died, "nobody listens at {}:{}", to.address, to.port);
  return socket;
}

/// Fetches the pieces of which `next` counts, until there are none. Asks for a piece before it has
/// read the one before, so that the server never waits.
Result<void> fetch_pieces(Stream& stream, const ObjectId& object, std::span<std::byte> target,
                          std::atomic<std::uint64_t>& next) {
  BlockReader reader(stream);
  std::vector<std::span<std::byte>> asked;
  const auto ask = [&]() -> Result<void> {
    const std::uint64_t offset = next.fetch_add(1) * data_piece;
    if (offset >= target.size()) return {};
    const auto room = target.subspan(offset, std::min(data_piece, target.size() - offset));
    PieceRequest request{object, offset, room.size()};
    asked.push_back(room);
    return stream.write(bytes_of(request));
  };
  TROUPE_CHECK(ask());
  while (!asked.empty()) {
    TROUPE_CHECK(ask());
    const auto room = asked.front();
    asked.erase(asked.begin());
    PieceHeader header;
    TROUPE_CHECK(reader.read(bytes_of(header)));
    if (header.bytes == 0) {
      return fail(ErrorCode::not_found, "the holder does not have the object any more");
    }
    if (header.bytes != room.size()) return fail(ErrorCode::corrupt_data, "a piece of wrong size");
    TROUPE_CHECK(reader.read(room));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<DataServer>> DataServer::start(const std::string& address, PortRange ports,
                                                      const CallKeys& keys, Find find) {
  std::unique_ptr<DataServer> server(new DataServer());
  TROUPE_TRY(server->tls_, TlsContext::create());
  server->listener_key_ = keys.listener;
  server->find_ = std::move(find);
  TROUPE_TRY(server->listener_, listen_in(ports, "object plane", address));
  TROUPE_TRY(server->port_, port_of(server->listener_.get()));
  server->wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->wake_) return fail_errno(errno, "cannot make an eventfd");
  server->thread_ = std::thread([self = server.get()] { self->run(); });
  return server;
}

DataServer::~DataServer() {
  is_stopping_ = true;
  if (thread_.joinable()) {
    ::eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  std::unique_lock lock(mutex_);
  for (const auto& [number, socket] : sockets_) ::shutdown(number, SHUT_RDWR);
  ended_.wait(lock, [this] { return sockets_.empty(); });
}

void DataServer::run() {
  Acceptor acceptor(std::move(listener_));
  const auto is_full = [this] {
    const std::lock_guard lock(mutex_);
    return sockets_.size() >= max_connections;
  };
  while (!is_stopping_) {
    const bool rests = acceptor.rests(Acceptor::Clock::now());
    pollfd polled[] = {{wake_.get(), POLLIN, 0},
                       {rests || is_full() ? -1 : acceptor.fd(), POLLIN, 0}};
    ::poll(polled, 2, rests ? 100 : -1);
    eventfd_t ignored = 0;
    ::eventfd_read(wake_.get(), &ignored);
    if (polled[1].revents == 0) continue;
    while (!is_full()) {
      UniqueFd socket = acceptor.accept(Acceptor::Clock::now());
      if (!socket) break;
      begin_to_serve(std::move(socket));
    }
  }
}

void DataServer::begin_to_serve(UniqueFd socket) {
  const std::lock_guard lock(mutex_);
  const int number = socket.get();
  try {
    std::thread([this, number] {
      serve(number);
      const std::lock_guard inner(mutex_);
      sockets_.erase(number);
      ::eventfd_write(wake_.get(), 1);  // for those that wait for their turn
      ended_.notify_all();
    }).detach();  // the destructor waits for sockets_ to be empty
    sockets_.emplace(number, std::move(socket));
  } catch (const std::system_error& error) {
    log::warning("no thread to send an object: {}", error.what());
  }
}

void DataServer::serve(int socket) {
  tune(socket);
  auto session =
      TlsSession::accept(*tls_, socket, [this](std::string_view identity) -> std::optional<Key> {
        const auto peer = LinkPeer::parse(identity);
        if (!peer.ok() || peer->role != reader_role) return std::nullopt;
        return data_key(call_pair_key(listener_key_.bytes, peer->name));
      });
  if (!session.ok()) return;
  UniqueFd own(::dup(socket));
  if (!own) return;
  Stream stream(std::move(own), *std::move(session), idle_limit, is_stopping_);
  const auto is_proven = stream.handshake();
  if (!is_proven.ok() || !*is_proven) return;
  BlockWriter writer(stream);
  std::vector<std::byte> scratch;
  PieceRequest request;
  while (stream.read(bytes_of(request)).ok()) {
    const auto source = find_(request.object);
    const bool fits = source && request.bytes > 0 && request.bytes <= data_piece &&
                      request.offset <= source->size &&
                      request.bytes <= source->size - request.offset;
    PieceHeader header{fits ? request.bytes : 0};
    if (!writer.write(bytes_of(header), fits).ok()) return;
    if (fits && !send_piece(writer, *source, request.offset, request.bytes, scratch).ok()) return;
  }
}

Result<bool> pull_object(const DataPlace& from, const std::string& own_name, const Key& key,
                         const ObjectId& object, std::span<std::byte> target, milliseconds patience,
                         const std::atomic<bool>& is_cancelled) {
  TROUPE_TRY(const auto tls, TlsContext::create());
  const std::size_t pieces = (target.size() + data_piece - 1) / data_piece;
  std::atomic<std::uint64_t> next = 0;
  const LinkPeer self{reader_role, own_name};
  // Null if the server has no turn for it, or nothing is left to fetch.
  const auto connect = [&]() -> Result<std::unique_ptr<Stream>> {
    TROUPE_TRY(auto socket, connect_socket(from, is_cancelled));
    TROUPE_TRY(auto session, TlsSession::connect(*tls, socket.get(), self.text(), data_key(key)));
    auto stream =
        std::make_unique<Stream>(std::move(socket), std::move(session), patience, is_cancelled);
    TROUPE_TRY(const bool is_served, stream->handshake([&] { return next >= pieces; }));
    return is_served ? std::move(stream) : nullptr;
  };
  const auto fetch = [&](Stream& stream) -> Result<void> {
    auto fetched = fetch_pieces(stream, object, target, next);
    if (!fetched.ok()) next = pieces;  // then the others need not go on, or wait for their turn
    if (fetched.ok()) stream.close();
    return fetched;
  };
  TROUPE_TRY(const auto first, connect());
  if (!first) return false;
  // A connection pays once it has a few pieces to fetch, and a core to decrypt them.
  const auto most = static_cast<std::size_t>(std::min(usable_cpu_count(), 4));
  const std::size_t connections = std::clamp<std::size_t>(pieces / 4, 1, most);
  std::vector<Result<void>> results(connections);
  std::vector<std::thread> threads;
  try {
    for (std::size_t i = 1; i < connections; ++i) {
      threads.emplace_back([&, i] {
        const auto stream = connect();  // without it the others fetch its pieces
        if (stream.ok() && *stream) results[i] = fetch(**stream);
      });
    }
  } catch (const std::system_error& error) {
    log::debug("{} of {} connections to fetch an object: {}", threads.size() + 1, connections,
               error.what());
  }
  results[0] = fetch(*first);
  {
    const BlockingScope waits;
    for (auto& thread : threads) thread.join();
  }
  for (auto& result : results) TROUPE_CHECK(std::move(result));
  return true;
}

}  // namespace troupe
