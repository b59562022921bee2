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

  /// The line of the input that is answered or refused next; they ascend.
  void expect(std::size_t line);
  /// Whether more lines may be expected: not while too many answers wait for those before them.
  bool has_room() const { return order_.has_room(); }

  /// Each after its expect(). Errors: those of Journal::append.
  Result<void> write(const RequestHeader& header, const Completion& completion);
  Result<void> write(const LineError& error);

  /// Lines of the output, and its error lines, those of earlier runs included.
  std::uint64_t lines() const { return journal_->lines_before() + written_; }
  const ErrorTally& errors() const { return errors_; }
  /// Lines that this run has written.
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
