#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/config_arguments.hpp"
#include "runtime/base/log.hpp"

namespace troupe {

/// The windows of a text that are scored.
struct WindowOptions {
  std::int64_t length = 512;  ///< tokens of a window; at least 2
  std::int64_t stride = 0;    ///< from the beginning of one to that of the next; 0: `length`
  std::int64_t most = 0;      ///< of windows, the first ones; 0: all
};

inline constexpr std::int64_t default_top_tokens = 20;

/// The options of `launcher eval`.
struct EvalOptions {
  ConfigSource config;                  ///< of the model
  std::optional<ConfigSource> against;  ///< of the one that is compared with it
  std::string text;                     ///< file; empty: none
  std::string tasks;                    ///< file; empty: none
  WindowOptions windows;
  std::string delimiter = " ";                   ///< between a task's context and its choices
  std::int64_t top_tokens = default_top_tokens;  ///< alternatives of a position that are compared
  std::int64_t greedy_prompts = 16;              ///< of the comparison of greedy answers; 0: none
  std::int64_t greedy_tokens = 64;               ///< of each answer
  std::int64_t layer_windows = 0;                ///< that layers are compared on; 0: they are not
  std::optional<double> max_increase;            ///< of the perplexity, 0.01 for 1 %; none: no gate
  std::string json, html;                        ///< files; empty: none
  bool quiet = false;
  log::Level log_level = log::Level::info;
};

/// The arguments of `launcher eval`, unchecked.
class EvalArguments {
 public:
  std::string_view summary() const;
  std::string details() const;
  void declare(CLI::App& app);
  Result<EvalOptions> judge() const;

 private:
  EvalOptions options_;
  ConfigArguments config_;
  std::vector<std::string> against_, against_sets_;
  std::string max_increase_;
  std::string log_level_ = "info";
};

/// Reads "1%" as 0.01, and "0.01" as itself. Errors: invalid_argument unless it is a share of 0 or
/// more.
Result<double> parse_share(std::string_view text);

}  // namespace troupe
