#pragma once

#include <string>

#include "runtime/base/result.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

/// The key that lets agents join a job, in a file that driver and agents read: one line,
/// "troupe-token 1 KEY", the key in hexadecimal. Nobody but its owner may be able to read the file.
///
/// Errors name the file: not_found; permission_denied if others can read it; invalid_argument if it
/// is no token.
Result<SecretKey> read_join_token(const std::string& path);

/// The same; makes the file (mode 0600, with a new key) if there is none. Several processes may
/// call it at once: all get the key of the first.
Result<SecretKey> read_or_make_join_token(const std::string& path);

}  // namespace troupe
