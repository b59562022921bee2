#pragma once

namespace CLI {
class App;
}

namespace troupe {

/// Makes `app`, and the subcommands that are added to it from then on, print help in two columns
/// that fit 80.
void format_help(CLI::App& app);

}  // namespace troupe
