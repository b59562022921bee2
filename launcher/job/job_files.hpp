#pragma once

#include <cstdint>
#include <string>

#include "launcher/cli/run_options.hpp"
#include "launcher/config/cluster_config.hpp"
#include "launcher/job/exit_messages.hpp"
#include "launcher/job/input_ahead.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/journal/journal.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Options from the YAML and the command line for an output with content.
JournalOptions journal_options(const Config& config, const RunOptions& options);

/// The lines of the input that the job answers.
Shard shard_of(const Config::Job& job);

/// The files of a job that is about to run.
struct JobFiles {
  std::string folder;       ///< of logs, lock and fingerprint; exists
  std::uint64_t total = 0;  ///< lines of the input; 0: not known
  Journal journal;
  InputAhead input;        ///< skips the lines that the journal has
  bool resumable = false;  ///< input and output can be read again

  /// Makes the folder, locks it, reads the existing answers, and replaces the logs of an earlier
  /// run by a new launcher.log. Touches neither output nor fingerprint. `keep_waiting` is the
  /// journal's, and is also called while the input is read. Errors: those of Journal::open and
  /// BatchReader::open; io; cancelled.
  static Result<JobFiles> open(const JobPlan& plan, const RunOptions& options,
                               KeepGoing keep_waiting);

  /// True if every line of the input is in the output.
  bool nothing_left() const;
};

}  // namespace troupe
