#pragma once

#include <functional>

namespace troupe {

/// The limits of this machine, measured now; 0: not measured.
struct Ceilings {
  double operations_per_second = 0;  ///< fp32 multiply-adds on registers, two each
  double bytes_per_second = 0;       ///< reading memory sequentially

  bool known() const { return operations_per_second > 0 && bytes_per_second > 0; }
};

/// Measures both on `threads` threads at once, for about `seconds` each; takes at most 1 GiB.
Ceilings measure_ceilings(int threads, double seconds);

/// Measures Ceilings::operations_per_second with vectors of 512 bits or of 256.
double measure_operations(int threads, bool avx512, double seconds);

/// Returns the sum over `threads` threads of the work each does per second, all measured over the
/// same time, about `seconds`. `round` does a piece of work, returns its amount, and is called on
/// the thread that its argument names (0 is the caller's). Its first call on each is not counted,
/// so memory that it allocates there is local to that thread.
double rate_of(int threads, double seconds, const std::function<double(int thread)>& round);

}  // namespace troupe
