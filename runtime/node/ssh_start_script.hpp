#pragma once

#include <string>
#include <vector>

namespace troupe {

/// What ssh_start_command starts.
struct SshStart {
  std::string program;                     ///< its path there
  std::string build;                       ///< this_build(), hexadecimal
  std::string copy;                        ///< the name of a copy of it
  std::string folder;                      ///< to run in, if it is there; may be empty
  std::vector<std::string> environment{};  ///< NAME=VALUE
};

/// Builds the command for the shell of a host that starts an agent there: `program`, if it is of
/// that build, or else the copy of it in the user's cache,
/// ${XDG_CACHE_HOME:-~/.cache}/troupe/programs/COPY, which is made if it is not there. The agent's
/// output goes to stderr.
///
/// Over stdout the command says, in lines that begin with "troupe: ":
///   ready           the agent is being executed: its ticket is to follow over stdin
///   absent          no program: a line over stdin is to follow, "BYTES SHA256" and then a
///                   ProgramArchive, or "none"
///   failed: WHY     it ends
/// A copy is checked, and run once, before it gets its name. Copies that nobody has started from
/// for 30 days are removed, and those that broke off.
std::string ssh_start_command(const SshStart& start);

}  // namespace troupe
