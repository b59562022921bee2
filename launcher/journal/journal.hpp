#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/batch/output/batch_writer.hpp"
#include "launcher/journal/fingerprint.hpp"
#include "launcher/journal/job_lock.hpp"
#include "launcher/journal/past_answers.hpp"
#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What to do with an output that has content.
enum class ResumeMode {
  automatic,  ///< resume it if its fingerprint is that of this job
  force,      ///< resume it in any case
  never,      ///< refuse
  overwrite,  ///< replace it
};

/// The codes of error lines to retry; empty: all codes.
using RetriedCodes = std::vector<std::string>;

struct JournalOptions {
  std::string output;  ///< a file, a FIFO, or "-" for standard output
  std::string input;
  std::string folder = {};  ///< for lock and fingerprint; empty: job_folder_of(output)
  ResumeMode mode = ResumeMode::automatic;
  std::optional<RetriedCodes> retry_errors = {};  ///< absent: error lines count as answered
  bool ordered = false;                           ///< the lines stand in the order of the input
  bool must_be_resumable = false;    ///< refuse if output or input cannot be read again
  KeepGoing keep_waiting = nullptr;  ///< see OutputOptions; called while the output is read, too
};

/// The folder of a job's logs, lock and fingerprint: beside its output, with ".job" appended to its
/// name. Empty for standard output and devices: such a job cannot be resumed and gets a temporary
/// one.
std::string job_folder_of(const std::string& output);

/// Checks `options` for everything a Journal would refuse that can be seen without the model;
/// changes nothing. Errors: those of check_output; already_exists for content that is not to be
/// resumed; unsupported if must_be_resumable is set and it is not; invalid_argument for errors that
/// are to be retried in an ordered output.
Result<void> check_journal(const JournalOptions& options);

/// The output file as the record of what is done: an answer in it is not computed again. A job's
/// folder holds besides the logs `lock`, which keeps other jobs out, and `fingerprint.json`. An
/// answer counts once its line is whole; so however the process ends, the job can be resumed. One
/// thread at a time.
class Journal {
 public:
  /// Takes the lock and reads the existing answers; changes neither output nor fingerprint. `now`
  /// is this job's fingerprint; a resumed job keeps its identity. The job's folder exists. Errors:
  /// those of check_journal; already_exists while another job has the lock; invalid_argument for a
  /// fingerprint that differs, with the differences; corrupt_data for an output of another form;
  /// cancelled by keep_waiting.
  static Result<Journal> open(JournalOptions options, Fingerprint now);

  const JobIdentity& identity() const { return fingerprint_.identity; }
  /// Lines of the output from earlier runs, and the errors among them.
  std::uint64_t lines_before() const { return past_.lines; }
  const ErrorTally& errors_before() const { return past_.errors; }
  /// Error lines of earlier runs that are retried; not included in the counts above.
  std::uint64_t retried() const { return past_.retried; }
  /// Warnings for the user about the resumed job, a sentence each.
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// True if the earlier lines were made with the same fingerprint.
  bool same_job() const { return same_job_; }
  /// Moves out the ids of the existing answers, for the reader of the input.
  LineIds take_ids() { return std::move(past_.ids); }

  /// Prepares the output: cuts it to its whole lines, removes the error lines to retry, or empties
  /// it, and writes the fingerprint beside it. Call it once, before the first append. Errors: as
  /// BatchWriter::open, also already_exists for an output other than the one that was read; io.
  Result<void> begin();
  bool has_begun() const { return writer_.has_value(); }

  /// See BatchWriter.
  Result<void> append(std::string_view line) { return writer_->append(line); }
  Result<void> sync_if_due(std::chrono::steady_clock::time_point now) {
    return writer_->sync_if_due(now);
  }
  /// Does nothing before begin().
  Result<void> finish() { return writer_ ? writer_->finish() : Result<void>(); }
  const OutputBacklog* backlog() const { return writer_ ? writer_->backlog() : nullptr; }
  std::size_t missing_lines() const { return writer_ ? writer_->missing_lines() : 0; }

 private:
  Journal(JournalOptions options, Fingerprint fingerprint, JobLock lock);
  Result<void> read_past();
  AskedAgain asked_again() const;
  Result<void> drop_retried();

  JournalOptions options_;
  Fingerprint fingerprint_;
  JobLock lock_;
  std::optional<std::uint64_t> size_before_;  ///< of the output when it was read
  PastAnswers past_;
  std::vector<std::string> warnings_;
  bool same_job_ = true;
  std::optional<BatchWriter> writer_;
};

}  // namespace troupe
