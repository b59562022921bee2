#include "launcher/cli/version.hpp"

namespace troupe {

std::string_view program_version() { return "launcher (Troupe) " TROUPE_VERSION; }

}  // namespace troupe
