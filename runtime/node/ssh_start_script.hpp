#pragma once

#include <string>
#include <vector>

namespace troupe {

/// Builds the command for the shell of a host that starts an agent of build `build` (hexadecimal)
/// there: `program`, if it is of that build, or else the copy of it in the user's cache,
/// ${XDG_CACHE_HOME:-~/.cache}/troupe/programs/BUILD, which is made if it is not there. The agent
/// runs in `folder` if that exists, with NAME=VALUE of `environment`; its output goes to stderr.
///
/// Over stdout the command says, in lines that begin with "troupe: ":
///   ready           the agent is being executed: its ticket is to follow over stdin
///   absent          no program: a line over stdin is to follow, "BYTES SHA256" and then a
///                   ProgramArchive, or "none"
///   failed: WHY     it ends
/// A copy is checked, and run once, before it gets its name. Copies that nobody has used for 30
/// days are removed, and those that broke off.
std::string ssh_start_command(const std::string& program, const std::string& build,
                              const std::string& folder,
                              const std::vector<std::string>& environment);

}  // namespace troupe
