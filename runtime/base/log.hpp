#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "runtime/base/result.hpp"

namespace troupe::log {

/// Severity of a line, least severe first. The default threshold is `info`.
enum class Level { debug, info, warning, error };

/// The path of a log that goes to stderr in the form of a log file.
inline constexpr const char* to_stderr = "-";

/// Sends this process's log to `path` (appended, flushed at every line) with `process_name` on each
/// line. Lines that a full disk does not take are dropped, and counted in the log once there is
/// room. Before the first call, and with an empty path, only lines of `warning` and above, to
/// stderr. A later call takes the place of an earlier one. Callable from any thread. Errors: io and
/// what errno says.
Result<void> open(std::string_view process_name, const std::string& path, Level threshold);

/// Where this process's log goes since open(): its path, or to_stderr, as before.
std::string destination();

/// "debug", "info", "warning" or "error"; anything else is an invalid_argument that names the four.
Result<Level> parse_level(std::string_view name);

/// Writes one line with time (UTC, microseconds) and process name. Callable from any thread.
void write(Level level, std::string_view message);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace troupe::log
