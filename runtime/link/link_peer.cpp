#include "runtime/link/link_peer.hpp"

#include <algorithm>

namespace troupe {

Result<LinkPeer> LinkPeer::parse(std::string_view text) {
  const auto slash = text.find('/');
  const std::string_view role = text.substr(0, std::min(slash, text.size()));
  const std::string_view name = slash == text.npos ? "" : text.substr(slash + 1);
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (role.empty() || role.size() > 32 || !std::all_of(role.begin(), role.end(), is_lower) ||
      name.empty() || name.size() > 128 || std::any_of(name.begin(), name.end(), is_control)) {
    return fail(ErrorCode::invalid_argument, "a link identity that is not 'role/name'");
  }
  return LinkPeer{std::string(role), std::string(name)};
}

Key link_key(const JobKeys& keys, const LinkPeer& listener, const LinkPeer& connector) {
  // Lengths first, so that no two pairs of names give one text.
  const std::string a = listener.text(), b = connector.text();
  return keys.derive(fmt::format("link/{}:{}/{}:{}", a.size(), a, b.size(), b));
}

}  // namespace troupe
