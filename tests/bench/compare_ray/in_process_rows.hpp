#pragma once

#include "runtime/actor/cluster.hpp"

namespace troupe::bench {

/// What actors of the driver's own process cost. Ray has none.
class InProcessRows {
 public:
  explicit InProcessRows(Cluster& cluster) : cluster_(cluster) {}

  /// Actors a second: 100,000 that are spawned at once, until all are there; the median of three
  /// times.
  Result<double> spawned_per_second();
  /// Calls a second of one thread to one actor, without waiting for each answer; the median of five
  /// times 100,000.
  Result<double> calls_per_second();

  struct Memory {
    double waiting = 0;        ///< for its first call
    double waiting_again = 0;  ///< after calls
  };
  /// The bytes that are allocated for an actor with its handle, of 10,000.
  Result<Memory> bytes_per_actor();

 private:
  Cluster& cluster_;
};

}  // namespace troupe::bench
