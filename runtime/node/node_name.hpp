#pragma once

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace troupe {

/// True for letters, digits, '.', '-' and '_': a node's name may stand in paths and lists.
constexpr bool may_be_in_node_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

/// Returns the name of a host or an address ("fd00::1") as a node may have it ("fd00__1").
inline std::string node_name_of(std::string host) {
  constexpr std::size_t longest = 64;  // leaves room for free_node_name's number
  host.resize(std::min(host.size(), longest));
  std::ranges::replace_if(host, [](char c) { return !may_be_in_node_name(c); }, '_');
  return host.empty() ? "node" : host;
}

/// Returns the first of `base`, "base-2", "base-3" and so on that is not taken. `is_taken(name)`.
template <class IsTaken>
std::string free_node_name(const std::string& base, const IsTaken& is_taken) {
  std::string name = base;
  for (int number = 2; is_taken(name); ++number) name = fmt::format("{}-{}", base, number);
  return name;
}

}  // namespace troupe
