#pragma once

#include <string>

#include <fmt/format.h>

namespace troupe {

/// True for letters, digits, '.', '-' and '_': a node's name may stand in paths and lists.
constexpr bool may_be_in_node_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

/// Returns the first of `base`, "base-2", "base-3" and so on that is not taken. `is_taken(name)`.
template <class IsTaken>
std::string free_node_name(const std::string& base, const IsTaken& is_taken) {
  std::string name = base;
  for (int number = 2; is_taken(name); ++number) name = fmt::format("{}-{}", base, number);
  return name;
}

}  // namespace troupe
