#include "launcher/job/input_ahead.hpp"

#include <utility>

#include "launcher/batch/input/line_reader.hpp"

namespace troupe {

Result<bool> InputAhead::has_request(const KeepGoing& keep_going) {
  std::size_t bytes = 0;
  for (std::size_t lines = 1; bytes < max_bytes; ++lines) {
    Result<BatchReader::Item> read = reader_.next(std::chrono::milliseconds(0));
    if (!read.ok()) {
      ahead_.push_back(std::move(read));
      return false;
    }
    BatchReader::Item& item = *read;
    if (std::holds_alternative<BatchReader::NotYet>(item)) return true;
    if (lines % LineReader::lines_between_asks == 0) {
      TROUPE_CHECK(check_goes_on(keep_going, "the input"));
    }
    if (std::holds_alternative<BatchReader::AnsweredBefore>(item)) continue;
    const bool is_end = std::holds_alternative<BatchReader::End>(item);
    const bool is_request = std::holds_alternative<BatchRequest>(item);
    if (const auto* error = std::get_if<LineError>(&item)) {
      bytes += sizeof(item) + error->message.size();
    }
    ahead_.push_back(std::move(item));
    if (is_end || is_request) return is_request;
  }
  return true;
}

Result<BatchReader::Item> InputAhead::next(std::chrono::milliseconds timeout) {
  if (ahead_.empty()) return reader_.next(timeout);
  Result<BatchReader::Item> item = std::move(ahead_.front());
  ahead_.pop_front();
  return item;
}

}  // namespace troupe
