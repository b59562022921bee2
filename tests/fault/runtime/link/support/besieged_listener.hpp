#pragma once

#include <chrono>

namespace troupe::test {

/// Holds 2,000 idle connections to a listener of links and knocks 200 times a second, from another
/// process, while this one may have 1,024 descriptors. Expects an open link to answer everything,
/// new ones to open, and the whole to take at most 10 % of a core.
void besiege_a_listener(std::chrono::seconds duration);

}  // namespace troupe::test
