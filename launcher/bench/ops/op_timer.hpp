#pragma once

#include <cstddef>
#include <functional>

#include "models/ops/ops.hpp"

namespace troupe {

/// Times operations that a device runs one after another.
class OpTimer {
 public:
  /// `records`: `ops` can capture operations, so that many are enqueued by one call and the host's
  /// time for each is not measured.
  OpTimer(Ops& ops, bool records, double seconds)
      : ops_(ops), records_(records), seconds_(seconds) {}

  /// Returns the seconds of one operation: the median of several runs over many. `enqueue(turn)`
  /// enqueues it; turns count up, to alternate operands so that none is in the device's cache.
  /// Captured operations must be the same at each replay. Errors: those of Ops.
  Result<double> time(const std::function<void(std::size_t turn)>& enqueue, bool capturable = true);

 private:
  Ops& ops_;
  bool records_;
  double seconds_;
};

}  // namespace troupe
