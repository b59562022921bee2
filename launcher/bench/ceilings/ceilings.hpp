#pragma once

#include <functional>

namespace troupe {

/// What this machine can do at most, measured now; 0: not measured.
struct Ceilings {
  double operations_per_second = 0;  ///< fp32 multiply-adds on registers, two each
  double bytes_per_second = 0;       ///< reading memory from front to back

  bool known() const { return operations_per_second > 0 && bytes_per_second > 0; }
};

/// Measures both on `threads` threads at once, for about `seconds` each; takes at most 1 GiB.
Ceilings measure_ceilings(int threads, double seconds);

/// Operations per second as Ceilings has them, with vectors of 512 bits or of 256.
double measure_operations(int threads, bool avx512, double seconds);

/// The sum over `threads` threads of how much each does per second, all of them measured over the
/// same time, about `seconds`. `round` does a piece, tells how much it was, and is called on the
/// thread that it names (0 is the caller's); its first call on each is not counted, so what it
/// allocates there lies where that thread runs.
double rate_of(int threads, double seconds, const std::function<double(int thread)>& round);

}  // namespace troupe
