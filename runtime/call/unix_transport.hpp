#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "runtime/base/result.hpp"
#include "runtime/call/transport.hpp"
#include "runtime/security/handshake.hpp"
#include "runtime/security/plane_keys.hpp"

namespace troupe {

/// Links between processes of one node: unix stream sockets in the abstract namespace, so that no
/// file can be left behind. It admits peers of the same effective uid (SO_PEERCRED, checked by both
/// ends before anything is read) that pass the Handshake within `handshake_timeout`.
///
/// A frame is a little-endian u32 length and that many bytes, at most `max_frame_bytes`; before the
/// handshake is over at most Handshake::max_message_bytes. One thread (epoll) reads for all links;
/// senders write to the socket themselves and queue what it does not take, up to `max_queued_bytes`
/// (beyond which they wait, see Link::send).
///
/// Strangers: anybody on the machine may connect to an abstract socket. Connections are accepted at
/// a bounded rate (Acceptor); at most `max_strangers` are in their handshake, and a new one then
/// displaces the oldest, silent ones first. A legitimate peer that is displaced tries again until
/// `handshake_timeout`, so it gets in while strangers hold thousands of connections. Refusals are
/// summed up in the log (RefusalLog).
class UnixTransport final : public Transport {
 public:
  struct Options {
    /// The name is that of an abstract socket, without the leading NUL: at most 107 bytes.
    CallKeys keys;
    Identity identity;
    std::size_t max_frame_bytes = std::size_t{1} << 30;
    std::size_t max_queued_bytes = std::size_t{64} << 20;
    std::chrono::milliseconds handshake_timeout{5000};
    std::size_t max_strangers = 64;
  };

  explicit UnixTransport(Options options);
  ~UnixTransport() override;

  Result<void> start(TransportEvents events) override;
  const std::string& endpoint() const override;
  /// Runs `then` on the own thread with the key to connect to `listener` with, or an error
  /// (timed_out after `handshake_timeout`), unless the transport stops first.
  void ask_key(const std::string& listener, CallKeys::Answer then);
  std::shared_ptr<Link> connect(const std::string& endpoint) override;
  void run_after(std::chrono::milliseconds delay, std::function<void()> task) override;
  bool on_own_thread() const override { return std::this_thread::get_id() == own_thread(); }
  /// The id of its thread, once it has been started.
  std::thread::id own_thread() const;
  Result<void> flush(std::chrono::milliseconds timeout) override;
  void stop() override;

 private:
  class Loop;
  std::shared_ptr<Loop> loop_;
};

}  // namespace troupe
