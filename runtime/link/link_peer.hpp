#pragma once

#include <string>
#include <string_view>

#include "runtime/base/result.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

/// Names one end of a link: what it may do (`role`) and which one it is (`name`). The TLS identity
/// is "role/name", e.g. "agent/node0"; it travels in clear, so it must not be a secret.
struct LinkPeer {
  std::string role;
  std::string name;

  std::string text() const { return role + "/" + name; }
  /// Reads "role/name". The role is 1 to 32 lower-case letters; the name is 1 to 128 bytes, any but
  /// control characters. Errors: invalid_argument.
  static Result<LinkPeer> parse(std::string_view text);

  friend bool operator==(const LinkPeer&, const LinkPeer&) = default;
};

/// The key of one pair: HKDF over both names and over which end listens. Its holder can act as
/// `connector` towards `listener` and nothing else; the other direction has another key, so that no
/// end can be made to talk to itself.
Key link_key(const JobKeys& keys, const LinkPeer& listener, const LinkPeer& connector);

}  // namespace troupe
