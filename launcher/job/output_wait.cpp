#include "launcher/job/output_wait.hpp"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "launcher/batch/input/byte_source.hpp"
#include "launcher/progress/progress_view.hpp"
#include "runtime/base/format_bytes.hpp"

namespace troupe {
namespace {

double seconds_between(OutputWait::Clock::time_point since, OutputWait::Clock::time_point now) {
  return std::chrono::duration<double>(now - since).count();
}

std::string lines_text(std::size_t lines) {
  return fmt::format("{} line{}", lines, lines == 1 ? "" : "s");
}

std::string name_of(const std::string& output) {
  return output == standard_stream ? "standard output" : output;
}

/// " (4.0 KiB are free in /data)". A quota may leave less.
std::string free_space(const std::string& output) {
  if (output == standard_stream) return "";
  std::error_code error;
  const auto folder = std::filesystem::absolute(output, error).parent_path();
  const auto space = std::filesystem::space(folder, error);
  if (error) return "";
  return fmt::format(" ({} are free in {})", format_bytes(space.available), folder.string());
}

}  // namespace

Result<std::string> OutputWait::update(const OutputBacklog* backlog, Clock::time_point now) {
  if (backlog == nullptr) {
    if (!wait_) return std::string();
    const Wait over = *wait_;
    wait_.reset();
    return fmt::format("there is room for {} again after {}: {} that waited are written",
                       name_of(output_), format_duration(seconds_between(over.since, now)),
                       lines_text(over.lines));
  }
  const bool begins = !wait_;
  if (begins) wait_.emplace(Wait{now, Deadline(std::chrono::seconds(limit_seconds_), now)});
  wait_->lines = backlog->lines;
  const bool is_too_much = backlog->bytes > max_bytes;
  if (is_too_much || wait_->limit.is_over(now)) {
    const std::string how_long =
        is_too_much ? fmt::format("{} of answers wait for room", format_bytes(backlog->bytes))
                    : fmt::format("there was no room for {} (job.disk_full_wait_seconds)",
                                  format_duration(static_cast<double>(limit_seconds_)));
    return fail(ErrorCode::resource_exhausted, "{}; {}; {}. Make room{}", backlog->reason, how_long,
                lost_with(backlog), free_space(output_));
  }
  if (!begins) return std::string();
  return fmt::format(
      "{}; the job pauses: requests that run are finished, and their answers wait in memory. Make "
      "room{}, or raise the quota: it goes on by itself. After {} (job.disk_full_wait_seconds) it "
      "ends with exit code 3, and can be gone on with",
      backlog->reason, free_space(output_), format_duration(static_cast<double>(limit_seconds_)));
}

std::string OutputWait::notice(Clock::time_point now) const {
  if (!wait_) return "";
  return fmt::format("waiting {} of at most {} for room on the disk of {}",
                     format_duration(seconds_between(wait_->since, now)),
                     format_duration(static_cast<double>(limit_seconds_)), name_of(output_));
}

std::string lost_with(const OutputBacklog* backlog) {
  if (backlog == nullptr || backlog->lines == 0) return "";
  return fmt::format("{} that the disk had no room for {} lost, and {} computed again",
                     lines_text(backlog->lines), backlog->lines == 1 ? "is" : "are",
                     backlog->lines == 1 ? "is" : "are");
}

}  // namespace troupe
