#include "launcher/job/exit_messages.hpp"

#include <fmt/format.h>

#include "launcher/batch/input/byte_source.hpp"

namespace troupe {

std::string done_sentence(const JobStanding& standing) {
  const std::string of =
      standing.total > 0
          ? fmt::format("{} of {} lines {}", standing.done, standing.total,
                        standing.done == 1 ? "is" : "are")
          : fmt::format("{}", standing.done == 1 ? "1 line is"
                                                 : fmt::format("{} lines are", standing.done));
  const std::string before =
      standing.before > 0 ? fmt::format(" ({} of them before this run)", standing.before) : "";
  const std::string where = standing.output == standard_stream ? std::string("on standard output")
                                                               : "in " + standing.output;
  return fmt::format("{} answered {}{}", of, where, before);
}

std::string how_to_go_on(const JobStanding& standing) {
  if (!standing.resumable) {
    return "This job cannot be gone on with: its input or its output is a pipe";
  }
  std::string how = "The same command goes on";
  if (standing.mode == ResumeMode::overwrite) {
    how = "The same command without --overwrite goes on";
  } else if (standing.mode == ResumeMode::never) {
    how = "The same command with --resume goes on";
  }
  if (!standing.too_many_failures) return how;
  return how + ", with a larger job.max_failures (--set job.max_failures=off: any number)";
}

std::string failed_text(std::string_view why, const JobStanding& standing) {
  return fmt::format("launcher: {}\n{}. {}\nlogs: {}/", why, done_sentence(standing),
                     how_to_go_on(standing), standing.folder);
}

std::string describe(const EngineRecovery& recovery) {
  if (!recovery.seconds) return recovery.lost.front().message;
  return fmt::format("recovered in {:.2f} s: {} sequence{} computed anew", *recovery.seconds,
                     recovery.sequences, recovery.sequences == 1 ? " is" : "s are");
}

std::string stopped_text(std::string_view what, const JobStanding& standing) {
  return fmt::format("launcher: stopped by a signal; {}\n{}. {}", what, done_sentence(standing),
                     how_to_go_on(standing));
}

}  // namespace troupe
