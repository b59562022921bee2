#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

/// Changes whenever the meaning of anything on a wire between two processes does.
inline constexpr std::uint32_t protocol_version = 3;

/// What must agree between two processes before any other message.
struct Identity {
  std::uint32_t version = protocol_version;
  Key build{};  ///< see this_build
};

/// Identifies this program's build: from the linker's build id, or else the size and modification
/// time of the executable.
Key this_build();

/// The mutual challenge-response of the call plane, as a state machine without I/O. Four messages:
///   client greeting (version, build, nonce, name) -> server greeting + server proof -> client
///   proof -> welcome.
/// A proof is HMAC-SHA256(call_pair_key, role | client greeting | server greeting), so it is bound
/// to both nonces and to the client's name, and cannot be reflected. A party that refuses sends the
/// reason in clear text (versions and builds only) instead of its next message. Not synchronised.
class Handshake {
 public:
  /// The client's end: `key` is the call_pair_key() of the server and `name`, which is the client.
  /// Errors: invalid_argument for a name of more than 107 bytes; no nonce can be drawn.
  static Result<Handshake> as_client(std::string_view name, const Key& key, const Identity& self);
  /// The server's end: `key` is its call_listener_key(). Fails only if no nonce can be drawn.
  static Result<Handshake> as_server(const Key& key, const Identity& self);

  /// The message to send before anything is received; empty for the server.
  std::vector<std::byte> first_message() const;

  struct Reply {
    std::vector<std::byte> message;  ///< to be sent; may be empty
    bool done = false;               ///< the peer is authentic; frames may follow
    Error refusal;                   ///< meaningful if `refused`: close after sending
    bool refused = false;
  };
  /// Takes the peer's next message and refuses any malformed or unexpected one; never fails
  /// otherwise. permission_denied: the peer does not know the key; unsupported: other version or
  /// build.
  Reply on_message(std::span<const std::byte> message);

  static constexpr std::size_t max_message_bytes = 1024;

 private:
  enum class State {
    expects_client_greeting,
    expects_server_greeting,
    expects_proof,
    expects_welcome,
    over
  };

  static Result<Handshake> create(State first, std::string_view name, const Key& key,
                                  const Identity& self);
  Reply refuse(ErrorCode code, std::string why, bool tell_peer);
  Reply check_identity(std::span<const std::byte> greeting, const char* peer_name);
  Key proof(std::string_view role) const;

  State state_ = State::over;
  Key key_{};  ///< of the pair; the server's own until it has been greeted
  Identity self_;
  std::vector<std::byte> client_greeting_;
  std::vector<std::byte> server_greeting_;
};

}  // namespace troupe
