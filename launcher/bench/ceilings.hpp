#pragma once

namespace troupe {

/// What this machine can do at most, measured now; 0: not measured.
struct Ceilings {
  double operations_per_second = 0;  ///< fp32 multiply-adds on registers, two each
  double bytes_per_second = 0;       ///< reading memory from front to back

  bool known() const { return operations_per_second > 0 && bytes_per_second > 0; }
};

/// Measures both on `threads` threads at once, for about `seconds` each; takes at most 1 GiB.
Ceilings measure_ceilings(int threads, double seconds);

}  // namespace troupe
