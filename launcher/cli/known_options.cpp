#include "launcher/cli/known_options.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "launcher/config/nearest.hpp"

namespace troupe {

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names = {"--help"};
  for (const CLI::Option* option : app.get_options()) names.push_back(option->get_name());
  return names;
}

std::string about_unknown_option(std::string_view option, std::span<const std::string> known,
                                 std::string_view help) {
  const std::vector<std::string_view> names(known.begin(), known.end());
  const auto near = nearest(option, names);
  if (near.empty()) return fmt::format("unknown option {}; try {}", option, help);
  return fmt::format("unknown option {}; did you mean {}?", option, near);
}

}  // namespace troupe
