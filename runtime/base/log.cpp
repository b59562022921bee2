#include "runtime/base/log.hpp"

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "runtime/base/line_file.hpp"

namespace troupe::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

/// A log file.
class FileSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FileSink(LineFile file) : file_(std::move(file)) {}
  const std::string& path() const { return file_.path(); }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    file_.append(line_of(message), [&](const std::string& text) {
      return line_of({message.time, {}, message.logger_name, spdlog::level::warn, text});
    });
  }
  void flush_() override {}

  std::string line_of(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    return {line.data(), line.size()};
  }

  LineFile file_;
};

/// Makes the logger of a process without a log file: it writes warnings and errors to stderr.
std::shared_ptr<spdlog::logger> stderr_logger(std::string_view process_name) {
  auto logger = std::make_shared<spdlog::logger>(std::string(process_name),
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(spdlog::level::warn);
  logger->set_pattern("%n: %l: %v");
  return logger;
}

/// What this process logs by. Not spdlog's default logger, which is the program's own.
class CurrentLogger {
 public:
  spdlog::logger& get() { return *current_.load(); }
  /// The one before stays, as other threads may write by it just now.
  void replace(std::shared_ptr<spdlog::logger> logger) {
    const std::lock_guard lock(mutex_);
    current_ = all_.emplace_back(std::move(logger)).get();
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<spdlog::logger>> all_{stderr_logger(program_invocation_short_name)};
  std::atomic<spdlog::logger*> current_ = all_.front().get();
};

/// Never destroyed, as threads may log until the process ends.
CurrentLogger& current_logger() {
  static auto& logger = *new CurrentLogger;
  return logger;
}

/// The path of a logger's file; "-" for stderr.
std::string path_of(const spdlog::logger& logger) {
  for (const auto& sink : logger.sinks()) {
    const auto* file = dynamic_cast<const FileSink*>(sink.get());
    if (file != nullptr) return file->path();
  }
  return to_stderr;
}

}  // namespace

std::string destination() { return path_of(current_logger().get()); }

Result<void> open(std::string_view process_name, const std::string& path, Level threshold) {
  if (path.empty()) {
    current_logger().replace(stderr_logger(process_name));
    return {};
  }
  try {
    spdlog::sink_ptr sink;
    if (path == to_stderr) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      TROUPE_TRY(LineFile file, LineFile::open(path));
      sink = std::make_shared<FileSink>(std::move(file));
    }
    auto logger = std::make_shared<spdlog::logger>(std::string(process_name), std::move(sink));
    logger->set_level(to_spdlog(threshold));
    logger->flush_on(spdlog::level::debug);  // stderr is buffered, files are not
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%fZ %L %n: %v", spdlog::pattern_time_type::utc);
    current_logger().replace(std::move(logger));
  } catch (const spdlog::spdlog_ex& e) {
    return fail(ErrorCode::io, "cannot open the log file {}: {}", path, e.what());
  }
  return {};
}

Result<Level> parse_level(std::string_view name) {
  if (name == "debug") return Level::debug;
  if (name == "info") return Level::info;
  if (name == "warning") return Level::warning;
  if (name == "error") return Level::error;
  return fail(ErrorCode::invalid_argument,
              "unknown log level '{}': use debug, info, warning or error", name);
}

void write(Level level, std::string_view message) {
  current_logger().get().log(to_spdlog(level), message);
}

}  // namespace troupe::log
