#include "runtime/security/plane_keys.hpp"

#include <sys/prctl.h>

namespace troupe {

Key call_plane_key(const JobKeys& keys) { return keys.derive("call plane"); }

Result<Key> channel_key(const JobKeys& keys, std::string_view purpose) {
  constexpr std::size_t longest = 256;
  if (purpose.empty() || purpose.size() > longest) {
    return fail(ErrorCode::invalid_argument, "the purpose of a key has 1 to {} bytes, not {}",
                longest, purpose.size());
  }
  return keys.derive(fmt::format("channel/{}", purpose));
}

void forbid_dumps() { ::prctl(PR_SET_DUMPABLE, 0); }

}  // namespace troupe
