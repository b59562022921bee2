#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "launcher/batch/output/answer_format.hpp"
#include "launcher/batch/output/error_tally.hpp"
#include "launcher/batch/output/line_order.hpp"
#include "launcher/journal/journal.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Writes a job's lines to its journal, as they come or in the order of the input, and counts them.
/// One thread at a time.
class JobOutput {
 public:
  /// `journal` must outlive this.
  JobOutput(Journal& journal, bool ordered)
      : journal_(&journal), ordered_(ordered), errors_(journal.errors_before()) {}

  /// Announces the next input line to be answered or refused; line numbers ascend.
  void expect(std::size_t line);
  /// False while the disk is full, or too many answers wait for those of earlier lines.
  bool has_room() const { return order_.has_room() && journal_->backlog() == nullptr; }

  /// Writes the answer to an announced line; `completion` becomes an error if no line can hold it
  /// (fit_answer). Errors: those of Journal::append.
  Result<void> write(const RequestHeader& header, Completion& completion);
  Result<void> write(const LineError& error);

  /// Lines and error lines of the output, including those of earlier runs, without those for which
  /// the disk has no room.
  std::uint64_t lines() const {
    const OutputBacklog* backlog = journal_->backlog();
    return journal_->lines_before() + written_ - (backlog != nullptr ? backlog->lines : 0);
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
  std::uint64_t written_ = 0;
};

}  // namespace troupe
