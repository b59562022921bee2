#pragma once

#include <string>

namespace troupe {

/// Returns the line of an agent's log that says most about why it ended: the last one, but for what
/// srun adds behind it; at most 300 bytes. Empty if there is none.
std::string last_words(const std::string& log_path);

/// What a person can do about an agent that could not reach the driver, however it was started;
/// empty if its last words `said` something else.
std::string remedy_for_unreached_driver(const std::string& said);

}  // namespace troupe
