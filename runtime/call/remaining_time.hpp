#pragma once

#include <cstdint>

#include "runtime/call/call_terms.hpp"

namespace troupe {

/// What is left until the deadline, at least 1; 0 for none.
std::uint32_t remaining_ms(CallDeadline deadline);
CallDeadline deadline_of(std::uint32_t remaining_ms);

}  // namespace troupe
