#pragma once

#include <cstdint>

#include "launcher/progress/progress_view.hpp"

namespace troupe::progress_test {

/// A job of 1,000 lines at work.
inline ProgressState state_at(double seconds, std::uint64_t done, std::uint64_t output_tokens) {
  ProgressState state;
  state.seconds = seconds;
  state.total = 1000;
  state.done = done;
  state.output_tokens = output_tokens;
  state.finished_tokens = output_tokens;
  state.prompt_tokens = 2 * output_tokens;
  state.running = 12;
  state.waiting = 34;
  state.kv_use = 0.56;
  return state;
}

}  // namespace troupe::progress_test
