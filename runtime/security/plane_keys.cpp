#include "runtime/security/plane_keys.hpp"

#include <algorithm>
#include <array>

#include <sys/prctl.h>

namespace troupe {

CallKeys call_keys(const JobKeys& keys, const std::string& name) {
  return {name, SecretKey(call_listener_key(keys, name)),
          [keys, name](const std::string& listener, const CallKeys::Answer& answer) {
            answer(call_pair_key(call_listener_key(keys, listener), name));
          }};
}

Result<std::string> draw_call_name(std::string_view job_id) {
  std::array<std::byte, 16> unguessable{};
  TROUPE_CHECK(random_bytes(unguessable));
  return fmt::format("troupe-{}-{}", job_id, to_hex(unguessable));
}

Key call_listener_key(const JobKeys& keys, std::string_view name) {
  return keys.derive(fmt::format("call plane/{}", name));
}

Key call_pair_key(const Key& listener, std::string_view connector) {
  return hmac_sha256(listener, std::as_bytes(std::span(connector)));
}

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
