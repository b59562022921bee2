#pragma once

#include <chrono>
#include <string_view>
#include <utility>

#include "runtime/base/exception_text.hpp"

namespace troupe {

/// How long whoever ends the thread of callbacks waits for one that runs, unless it is told
/// otherwise.
inline constexpr std::chrono::milliseconds callback_grace{5000};

/// True while this thread runs a callback of the runtime. Calls made then must not wait for
/// credits: the answers that return credits may come in on this very thread.
bool runs_callback();

namespace callback_detail {
bool set_runs_callback(bool runs);
void report_exception(std::string_view text);
}  // namespace callback_detail

/// Runs `callback(arguments...)` with runs_callback() true. Logs an exception as an error: the
/// thread is the runtime's and must go on.
template <class Callback, class... Arguments>
void run_callback(const Callback& callback, Arguments&&... arguments) noexcept {
  const bool before = callback_detail::set_runs_callback(true);
  try {
    callback(std::forward<Arguments>(arguments)...);
  } catch (...) {
    callback_detail::report_exception(current_exception_text());
  }
  callback_detail::set_runs_callback(before);
}

}  // namespace troupe
