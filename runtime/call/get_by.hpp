#pragma once

#include <algorithm>
#include <chrono>

#include "runtime/base/deadline.hpp"
#include "runtime/call/future.hpp"

namespace troupe {

/// Waits for the answer until the deadline, which sees all of that time, and moves it out. On a
/// timeout the error is timed_out, the call goes on, and it may be asked for again.
template <class T>
Result<T> get_by(Future<T>& future, Deadline& deadline) {
  const auto begin = Deadline::Clock::now();
  while (!deadline.is_over() &&
         !future.wait(std::min<Deadline::Clock::duration>(deadline.left(), Deadline::slice))) {
  }
  if (future.ready()) return future.get(std::chrono::nanoseconds(0));
  const auto waited =
      std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now() - begin);
  return fail(ErrorCode::timed_out, "no answer within {} ms", waited.count());
}

}  // namespace troupe
