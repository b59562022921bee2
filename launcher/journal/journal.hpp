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

/// What is to become of an output that has content.
enum class ResumeMode {
  automatic,  ///< gone on with, if its fingerprint is that of this job
  force,      ///< gone on with in any case
  never,      ///< refused
  overwrite,  ///< replaced
};

/// Which error lines of earlier runs are asked again: those of the codes, all if there are none.
/// Those that say that the engine had no room (is_transient) are asked again in any case.
using RetriedCodes = std::vector<std::string>;

struct JournalOptions {
  std::string output;  ///< a file, a FIFO, or "-" for standard output
  std::string input;
  std::string folder = {};  ///< of lock and fingerprint; empty: job_folder_of(output)
  ResumeMode mode = ResumeMode::automatic;
  std::optional<RetriedCodes> retry_errors = {};  ///< absent: error lines count as answered
  bool must_be_resumable = false;    ///< refused if output or input cannot be read again
  KeepGoing keep_waiting = nullptr;  ///< as OutputOptions; asked while the output is read, too
};

/// The folder of a job's logs, lock and fingerprint: beside its output, with ".job" behind its
/// name. Empty for standard output and devices: such a job has nothing to go on with and gets a
/// temporary one.
std::string job_folder_of(const std::string& output);

/// Whether a Journal would refuse `options` for what can be seen without the model; changes
/// nothing. Errors: those of check_output; already_exists for content that is not to be gone on
/// with; unsupported for what must_be_resumable and is not.
Result<void> check_journal(const JournalOptions& options);

/// The output file as the record of what is done: an answer that is in it is not asked for again. A
/// job's folder holds beside the logs `lock`, which keeps other jobs off, and `fingerprint.json`.
/// An answer counts when its line is whole; so any end of the process leaves a job that can be gone
/// on with. One thread at a time.
class Journal {
 public:
  /// Takes the lock and reads what is answered; changes neither output nor fingerprint. `now` is
  /// this job's fingerprint; its identity is that of the job that is gone on with, if one is. The
  /// job's folder exists. Errors: those of check_journal; already_exists while another job has the
  /// lock; invalid_argument for a fingerprint that differs, with what does; corrupt_data for an
  /// output that is none; cancelled by keep_waiting.
  static Result<Journal> open(JournalOptions options, Fingerprint now);

  const JobIdentity& identity() const { return fingerprint_.identity; }
  /// Lines of the output from earlier runs, and the errors among them.
  std::uint64_t lines_before() const { return past_.lines; }
  const ErrorTally& errors_before() const { return past_.errors; }
  /// Error lines of earlier runs that are asked again; they count in none of the above.
  std::uint64_t retried() const { return past_.retried; }
  /// What the person should know of the job that is gone on with, a sentence each.
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// The fingerprint is the one that the earlier lines were made with.
  bool same_job() const { return same_job_; }
  /// Gives the ids of what is answered away, for the reader of the input.
  LineIds take_ids() { return std::move(past_.ids); }

  /// Makes the output ready: cut to its whole lines, rid of the error lines that are asked again,
  /// or emptied, and the fingerprint beside it. Call it once, before the first append. Errors: as
  /// BatchWriter::open, also already_exists for an output that is not the one that was read; io.
  Result<void> begin();
  bool has_begun() const { return writer_.has_value(); }

  /// As BatchWriter.
  Result<void> append(std::string_view line) { return writer_->append(line); }
  Result<void> sync_if_due(std::chrono::steady_clock::time_point now) {
    return writer_->sync_if_due(now);
  }
  /// Also before begin(): then it does nothing.
  Result<void> finish() { return writer_ ? writer_->finish() : Result<void>(); }

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
