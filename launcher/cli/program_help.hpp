#pragma once

#include "launcher/cli/subcommand.hpp"

namespace troupe {

/// The rows without options of their own: the text of `launcher --help` and `launcher bench --help`
/// before and after the list of commands.
Subcommand program_row();
Subcommand bench_row();

}  // namespace troupe
