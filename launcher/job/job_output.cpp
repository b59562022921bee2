#include "launcher/job/job_output.hpp"

#include <utility>

namespace troupe {

void JobOutput::expect(std::size_t line) {
  if (ordered_) order_.expect(line);
}

Result<void> JobOutput::write(const RequestHeader& header, Completion& completion) {
  std::string text = fit_answer(header, completion, journal_->identity());
  return write(OutputLine{.line = header.line,
                          .text = std::move(text),
                          .error_code = completion.error_code,
                          .error = completion.error});
}

Result<void> JobOutput::write(const LineError& error) {
  return write(OutputLine{.line = error.line,
                          .text = format_error(error, journal_->identity()),
                          .error_code = error.code,
                          .error = error.message});
}

Result<void> JobOutput::write(OutputLine line) {
  if (!ordered_) return append(line);
  order_.put(std::move(line));
  while (const auto next = order_.take()) TROUPE_CHECK(append(*next));
  return {};
}

Result<std::string> JobOutput::tend(Clock::time_point now) {
  TROUPE_CHECK(journal_->sync_if_due(now));
  return wait_.update(journal_->backlog(), now);
}

Result<bool> JobOutput::finish() {
  if (waits_for_room()) return false;  // tend() tries again
  const auto finished = journal_->finish();
  if (!finished.ok() && !waits_for_room()) return finished.error();
  return finished.ok();
}

Result<void> JobOutput::append(const OutputLine& line) {
  ++written_;  // one that an error loses is missing then
  TROUPE_CHECK(journal_->append(line.text));
  if (!line.error_code.empty()) errors_.add(line.line, line.error_code, line.error);
  return {};
}

}  // namespace troupe
