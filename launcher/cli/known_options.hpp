#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace troupe {

/// The options that `app` has declared, by their long names, and --help, which it leaves to us.
std::vector<std::string> option_names(const CLI::App& app);

/// What to say of `option`, which is none of `known`: the nearest of these, or `help`, the command
/// that tells all.
std::string about_unknown_option(std::string_view option, std::span<const std::string> known,
                                 std::string_view help);

}  // namespace troupe
