#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "actors/api/engine_spec.hpp"
#include "launcher/journal/journal.hpp"

namespace troupe {

/// The facts for the final message of an unfinished job.
struct JobStanding {
  std::uint64_t done = 0;    ///< lines of the output
  std::uint64_t before = 0;  ///< part of done, from earlier runs
  std::uint64_t total = 0;   ///< lines of the input; 0: not known
  std::string output;
  std::string folder;  ///< of the logs
  ResumeMode mode = ResumeMode::automatic;
  bool resumable = true;           ///< input and output are files
  bool too_many_failures = false;  ///< more error lines than job.max_failures
};

/// "120 of 400 lines are answered in out.jsonl (80 of them before this run)".
std::string done_sentence(const JobStanding& standing);

/// The advice to the user, e.g. "The same command goes on".
std::string how_to_go_on(const JobStanding& standing);

/// The message after an error: the error, what is done, how to resume, where the logs are.
std::string failed_text(std::string_view why, const JobStanding& standing);

/// How a process ended, and the last lines of its log.
std::string describe_end(const ActorDown& down);

/// What is told when a recovery begins, naming what was lost, and when it has ended.
std::string describe(const EngineRecovery& recovery);

/// "1 of 2 step domains serve".
std::string serving_domains(std::int32_t serving, std::int32_t all);

/// The message after signals: `what` happened to the running requests.
std::string stopped_text(std::string_view what, const JobStanding& standing);

}  // namespace troupe
