#include "launcher/job/exit_messages.hpp"

#include <span>

#include <fmt/format.h>

#include "actors/api/losses.hpp"
#include "launcher/batch/input/byte_source.hpp"
#include "runtime/base/terminal_text.hpp"

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

std::string describe_end(const ActorDown& down) {
  std::string text = down.message;
  if (down.log_lines.empty()) return text;
  text += "\nthe last lines of its log:";
  for (const std::string& line : down.log_lines) text += "\n  " + printable(line);
  return text;
}

namespace {

/// The causes each in a line, then what follows from the first.
std::string describe_losses(std::span<const ActorDown> lost) {
  const ActorDown& cause = cause_of(lost);
  std::string text = cause.message;
  std::string others;
  for (const ActorDown& down : lost) {
    if (&down == &cause) continue;
    if (is_consequence(down, cause)) {
      others +=
          fmt::format("{}'{}'", others.empty() ? "; with it, as a consequence: " : ", ", down.name);
    } else {
      text += "\n" + down.message;
    }
  }
  text += others;
  if (!began_inside(lost) || cause.log_lines.empty()) return text;
  text += fmt::format("\nthe last lines of the log of '{}':", cause.name);
  for (const std::string& line : cause.log_lines) text += "\n  " + printable(line);
  return text;
}

}  // namespace

std::string serving_domains(std::int32_t serving, std::int32_t all) {
  return fmt::format("{} of {} step domains serve", serving, all);
}

std::string describe(const EngineRecovery& recovery) {
  if (recovery.seconds) {
    return fmt::format("recovered in {:.2f} s: {} sequence{} computed anew", *recovery.seconds,
                       recovery.sequences, recovery.sequences == 1 ? " is" : "s are");
  }
  std::string text = describe_losses(recovery.lost);
  if (recovery.suspects > 0) {
    text += fmt::format(
        "; {} request{} under way in this crash and in the one before: such are computed one at a "
        "time, each until it is further than it was then",
        recovery.suspects, recovery.suspects == 1 ? " was" : "s were");
  }
  const std::size_t given_up = recovery.given_up.size();
  if (given_up > 0) {
    text += fmt::format(
        "; {} request{} given up, as processes crashed or hung again and again while they computed "
        "{}",
        given_up, given_up == 1 ? " is" : "s are", given_up == 1 ? "it" : "them");
  }
  return text;
}

std::string stopped_text(std::string_view what, const JobStanding& standing) {
  return fmt::format("launcher: stopped by a signal; {}\n{}. {}", what, done_sentence(standing),
                     how_to_go_on(standing));
}

}  // namespace troupe
