#pragma once

#include "launcher/cli/subcommand.hpp"

namespace troupe {

/// The rows that have no options of their own: what `launcher --help` and `launcher bench --help`
/// say before and after the list of commands.
Subcommand program_row();
Subcommand bench_row();

}  // namespace troupe
