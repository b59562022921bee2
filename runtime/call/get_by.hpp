#pragma once

#include <algorithm>
#include <chrono>

#include "runtime/base/deadline.hpp"
#include "runtime/call/future.hpp"

namespace troupe {

/// Waits for the answer until the deadline, which sees all of that time, and moves it out. On a
/// timeout as Future::get.
template <class T>
Result<T> get_by(Future<T>& future, Deadline& deadline) {
  while (!deadline.is_over() &&
         !future.wait(std::min<Deadline::Clock::duration>(deadline.left(), Deadline::slice))) {
  }
  return future.get(std::chrono::nanoseconds(0));
}

}  // namespace troupe
