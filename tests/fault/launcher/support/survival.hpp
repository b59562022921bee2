#pragma once

#include <string>
#include <string_view>

namespace troupe::test {

/// What survive_kills does.
struct Kills {
  std::string parallel;  ///< the keys of the YAML's section of this name
  int kills = 3;
  int at_once = 1;   ///< processes that are killed together
  int in_a_row = 1;  ///< such kills, at most 100 ms apart
  int requests = 200;
  std::string victims = "worker-";  ///< how their roles begin
  bool with_executor = false;       ///< each kill takes an executor as well
  std::string body = "{}";          ///< see LauncherRun::start
  std::string sections = {};        ///< more of the YAML
};

/// Kills random processes of one job at random moments, and expects that the job finishes by itself
/// with the bytes of an undisturbed run, and that its report counts the recoveries. Prints the seed
/// and the time of each recovery.
void survive_kills(const Kills& kills);

}  // namespace troupe::test
