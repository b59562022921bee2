#pragma once

#include <algorithm>
#include <ctime>
#include <limits>

namespace troupe {

/// The seconds for which this thread has computed: others on the machine do not count.
inline double thread_cpu_s() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The least that one of some runs of `measured`, which returns what it took, has taken.
template <class Measured>
double least_of(int runs, Measured measured) {
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < runs; ++i) least = std::min<double>(least, measured());
  return least;
}

}  // namespace troupe
