#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/config/cluster_config.hpp"

namespace troupe::config_test {

/// A YAML with the keys that a run needs.
inline constexpr std::string_view minimal =
    "model: {path: configs/demo/fable-moe}\n"
    "job: {input: in.jsonl, output: out.jsonl}\n";

inline std::string with(const std::string& lines) { return std::string(minimal) + lines; }

/// Parses the text as file c.yaml, with --set for each of `sets`.
inline Result<Config> parse(std::string_view text, const std::vector<std::string>& sets = {},
                            Purpose purpose = Purpose::run) {
  std::vector<Override> overrides;
  for (const auto& set : sets) {
    auto parsed = parse_override(set);
    if (!parsed) return std::move(parsed).error();
    overrides.push_back(*parsed);
  }
  return parse_config(text, "c.yaml", overrides, purpose);
}

}  // namespace troupe::config_test
