#pragma once

#include <chrono>
#include <thread>

#include "runtime/base/deadline.hpp"

namespace troupe::test {

/// Waits until `holds()`; false if it does not within the limit.
template <class Holds>
bool comes_true(Holds holds, std::chrono::nanoseconds limit = std::chrono::seconds(30)) {
  Deadline deadline(limit);
  while (!holds()) {
    if (deadline.is_over()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace troupe::test
