#pragma once

namespace troupe::test {

/// Factor for tests' limits on wall-clock time: sanitizers slow code down two to ten times.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int time_scale = 10;
#else
inline constexpr int time_scale = 1;
#endif

}  // namespace troupe::test
