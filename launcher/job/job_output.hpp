#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "launcher/batch/output/answer_format.hpp"
#include "launcher/batch/output/error_tally.hpp"
#include "launcher/batch/output/line_order.hpp"
#include "launcher/job/output_wait.hpp"
#include "launcher/journal/journal.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Writes a job's lines to its journal, as they come or in the order of the input, counts them, and
/// waits while the disk is full. One thread at a time.
class JobOutput {
 public:
  using Clock = OutputWait::Clock;

  /// `journal` must outlive this.
  JobOutput(Journal& journal, bool ordered, OutputWait wait)
      : journal_(&journal),
        ordered_(ordered),
        errors_(journal.errors_before()),
        wait_(std::move(wait)) {}

  /// Announces the next input line to be answered or refused; line numbers ascend.
  void expect(std::size_t line);
  /// False while the disk is full, or too many answers wait for those of earlier lines.
  bool has_room() const { return order_.has_room() && !waits_for_room(); }
  /// The disk is full: lines wait for it.
  bool waits_for_room() const { return journal_->backlog() != nullptr; }

  /// Writes the answer to an announced line; `completion` becomes an error if no line can hold it
  /// (fit_answer). Errors: those of Journal::append.
  Result<void> write(const RequestHeader& header, Completion& completion);
  Result<void> write(const LineError& error);

  /// Writes lines that wait for room, and syncs if it is time. Call it a few times a second.
  /// Returns what a person is told of a full disk, mostly nothing. Errors: those of
  /// Journal::sync_if_due and OutputWait::update.
  Result<std::string> tend(Clock::time_point now);
  /// Returns true once all lines are on the disk, and false while it has no room for them. Errors:
  /// those of Journal::finish.
  Result<bool> finish();
  /// See OutputWait::notice.
  std::string notice(Clock::time_point now) const { return wait_.notice(now); }
  /// See lost_with.
  std::string lost() const { return lost_with(journal_->backlog()); }

  /// Lines and error lines of the output, including those of earlier runs, without those for which
  /// the disk has no room and those that an error has lost.
  std::uint64_t lines() const {
    return journal_->lines_before() + written_ - journal_->missing_lines();
  }
  const ErrorTally& errors() const { return errors_; }
  /// Lines written by this run, with those for which the disk has no room.
  std::uint64_t written() const { return written_; }

 private:
  Result<void> write(OutputLine line);
  Result<void> append(const OutputLine& line);

  Journal* journal_;
  bool ordered_ = false;
  LineOrder order_;
  ErrorTally errors_;
  OutputWait wait_;
  std::uint64_t written_ = 0;
};

}  // namespace troupe
