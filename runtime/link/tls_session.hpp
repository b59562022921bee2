#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

/// State shared by all TLS sessions of a process: TLS 1.3 (RFC 8446) alone, an external pre-shared
/// key with (EC)DHE (`psk_dhe_ke`), so recorded bytes stay secret even if the key is lost later,
/// and neither certificates nor tickets nor early data. Immutable once made; outlives its sessions.
class TlsContext {
 public:
  static Result<std::unique_ptr<TlsContext>> create();
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsSession;
  struct State;
  explicit TlsContext(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// TLS over one non-blocking socket, which the caller owns and polls. Not synchronised.
class TlsSession {
 public:
  /// Returns the key of the peer that claims this identity; empty refuses it.
  using KeyOf = std::function<std::optional<Key>(std::string_view identity)>;

  /// The listening end.
  static Result<std::unique_ptr<TlsSession>> accept(const TlsContext& context, int socket,
                                                    KeyOf key_of);
  /// The connecting end, which claims `identity` and proves it by `key`.
  static Result<std::unique_ptr<TlsSession>> connect(const TlsContext& context, int socket,
                                                     std::string identity, const Key& key);
  ~TlsSession();

  /// Continues the handshake; true once both ends have proven that they know the key. False if the
  /// socket must become ready first. Errors: permission_denied, peer_died, io.
  Result<bool> handshake();
  /// Reads into `room`; 0 if the socket must become ready first. peer_died at the stream's end.
  Result<std::size_t> read(std::span<std::byte> room);
  /// Writes a prefix of `bytes` and returns its length; 0 if the socket must become ready first,
  /// and then the next call must pass the same bytes. With `more_follows` the kernel may hold the
  /// end back until the next call, so that packets are full.
  Result<std::size_t> write(std::span<const std::byte> bytes, bool more_follows = false);
  /// True if the last call waits for the socket to become writable, false if readable.
  bool wants_write() const;
  /// Tells the peer that nothing follows; does not wait.
  void say_goodbye();

  /// Derives a secret that both ends have, and nobody else, from the handshake and a name of what
  /// it is for (RFC 8446, 7.5). After the handshake. Errors: internal.
  Result<void> export_secret(std::string_view purpose, std::span<std::byte> secret);

  /// The identity that the peer has proven; at the listening end, after the handshake.
  const std::string& identity() const;

 private:
  friend class TlsContext;
  struct State;
  explicit TlsSession(std::unique_ptr<State> state);
  static Result<std::unique_ptr<TlsSession>> make(const TlsContext& context, bool listening,
                                                  int socket, std::unique_ptr<State> state);
  Error error_of(int outcome, std::string_view what);

  std::unique_ptr<State> state_;
};

}  // namespace troupe
