#include "runtime/security/plane_keys.hpp"

#include <algorithm>

#include <sys/prctl.h>

namespace troupe {

Key call_plane_key(const JobKeys& keys) { return keys.derive("call plane"); }

Result<Key> channel_key(const JobKeys& keys, std::string_view asker, const ChannelScope& scope) {
  constexpr std::size_t longest = 256;
  if (scope.purpose.empty() || scope.purpose.size() > longest) {
    return fail(ErrorCode::invalid_argument, "the purpose of a key has 1 to {} bytes, not {}",
                longest, scope.purpose.size());
  }
  if (std::ranges::find(scope.members, asker) == scope.members.end()) {
    return fail(ErrorCode::permission_denied,
                "actor '{}' asks for the key of \"{}\", a channel of others", asker, scope.purpose);
  }
  std::vector<std::string> members = scope.members;
  std::ranges::sort(members);
  // Lengths first, so that no two scopes give one text.
  std::string text = fmt::format("channel/{}:{}", scope.purpose.size(), scope.purpose);
  for (const std::string& member : members) {
    text += fmt::format("/{}:{}", member.size(), member);
  }
  return keys.derive(text);
}

void forbid_dumps() { ::prctl(PR_SET_DUMPABLE, 0); }

}  // namespace troupe
