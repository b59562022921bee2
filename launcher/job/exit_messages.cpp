#include "launcher/job/exit_messages.hpp"

#include <fmt/format.h>

namespace troupe {

std::string done_sentence(const JobStanding& standing) {
  const std::string of = standing.total > 0
                             ? fmt::format("{} of {} lines are", standing.done, standing.total)
                             : fmt::format("{} lines are", standing.done);
  const std::string before =
      standing.before > 0 ? fmt::format(" ({} of them before this run)", standing.before) : "";
  return fmt::format("{} answered in {}{}", of, standing.output, before);
}

std::string how_to_go_on(const JobStanding& standing) {
  if (!standing.resumable) {
    return "This job cannot be gone on with: its input or its output is a pipe";
  }
  switch (standing.mode) {
    case ResumeMode::overwrite:
      return "The same command without --overwrite goes on";
    case ResumeMode::never:
      return "The same command with --resume goes on";
    case ResumeMode::force:
    case ResumeMode::automatic:
      return "The same command goes on";
  }
  return "";
}

std::string failed_text(std::string_view why, const JobStanding& standing) {
  return fmt::format("launcher: {}\n{}. {}\nlogs: {}/", why, done_sentence(standing),
                     how_to_go_on(standing), standing.folder);
}

std::string stopped_text(std::string_view what, const JobStanding& standing) {
  return fmt::format("launcher: stopped by a signal; {}\n{}. {}", what, done_sentence(standing),
                     how_to_go_on(standing));
}

}  // namespace troupe
