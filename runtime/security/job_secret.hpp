#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// 32 bytes of key material.
using Key = std::array<std::byte, 32>;

/// Overwrites bytes that nobody may find in memory later.
void wipe(std::span<std::byte> bytes);

/// A key being passed to another process; wiped on destruction.
struct SecretKey {
  Key bytes{};

  SecretKey() = default;
  explicit SecretKey(const Key& key) : bytes(key) {}
  SecretKey(const SecretKey&) = default;
  SecretKey& operator=(const SecretKey&) = default;
  ~SecretKey() { wipe(bytes); }
  template <class Archive>
  void fields(Archive& archive) {
    archive(bytes);
  }
};

/// The keys of one job. The driver draws a random 256-bit secret; every other key is derived from
/// it by HKDF-SHA256 (RFC 5869) with a purpose as the info string, so that no two planes share a
/// key.
///
/// Only driver and agents hold the secret; an actor process gets the keys that it needs
/// (plane_keys.hpp) and cannot pose as either.
///
/// Authenticated are: control plane (TLS 1.3 with a key of each pair), call plane (with a key of
/// each pair too: over unix sockets peer uid by SO_PEERCRED, then mutual HMAC challenge-response;
/// between nodes TLS 1.3), and whatever actors key with `channel_key`
/// (ZeroMQ CURVE pairs of the step plane and TLS 1.3 of the tensor plane, for example). Not
/// protected are: bytes on a unix socket after the handshake (neither encrypted nor authenticated;
/// the kernel carries them between processes of one uid); the secret in memory, which root and
/// processes of the same uid that may ptrace can read; peers of NCCL, which authenticates none, so
/// its rendezvous must go over an authenticated plane. Denial of service by local users is bounded
/// (peer uid is checked before anything is read), not excluded. The secret travels to child
/// processes over inherited sockets only, never in argv, the environment or a file.
class JobKeys {
 public:
  /// Draws a new secret from the kernel.
  static Result<JobKeys> generate();
  /// Takes the secret that a parent process passed on; exactly 32 bytes.
  static Result<JobKeys> from_secret(std::span<const std::byte> secret);

  JobKeys(const JobKeys&) = default;
  JobKeys& operator=(const JobKeys&) = default;
  ~JobKeys();  ///< wipes the secret

  /// Returns the 32-byte key for `purpose`, e.g. "call plane/NAME". The same in
  /// all processes of the job; different purposes give independent keys. A CURVE secret key may be
  /// made from it (any 32 bytes are a valid Curve25519 scalar). Callable from any thread.
  Key derive(std::string_view purpose) const;

  /// The secret itself, to be passed to a child process over an inherited descriptor.
  std::span<const std::byte> secret() const { return secret_; }

 private:
  JobKeys() = default;
  Key secret_{};
};

/// HMAC-SHA256 (RFC 2104) of `message`.
Key hmac_sha256(const Key& key, std::span<const std::byte> message);

/// Compares in a time that does not depend on the contents.
bool equal_in_constant_time(const Key& a, const Key& b);

/// Fills `out` with random bytes from the kernel.
Result<void> random_bytes(std::span<std::byte> out);

/// Lower-case hexadecimal text of `bytes`.
std::string to_hex(std::span<const std::byte> bytes);

}  // namespace troupe
