#include "launcher/batch/input/batch_reader.hpp"

#include <utility>

namespace troupe {

Result<BatchReader> BatchReader::open(const std::string& path, ParseContext context,
                                      LineIds answered, Shard shard) {
  TROUPE_TRY(LineReader lines, LineReader::open(path, "input", max_line_bytes));
  lines.take_only(shard);
  return BatchReader(std::move(lines), std::move(context), std::move(answered));
}

BatchReader::BatchReader(LineReader lines, ParseContext context, LineIds ids)
    : lines_(std::move(lines)), context_(std::move(context)), ids_(std::move(ids)) {}

Result<BatchReader::Item> BatchReader::next(std::chrono::milliseconds timeout) {
  TROUPE_TRY(const LineReader::Taken taken, lines_.take(timeout));
  if (taken.state == LineReader::State::end) return Item(End{});
  if (taken.state == LineReader::State::not_yet) return Item(NotYet{});
  return judge(taken.line);
}

BatchReader::Item BatchReader::judge(const LineReader::Line& line) {
  auto parsed = line.too_long
                    ? LineError{line.number,
                                std::string(line_error::line_too_long),
                                fmt::format("the line is longer than {} MiB", max_line_bytes >> 20),
                                {}}
                    : parse_line(line.text, line.number, context_);
  auto* request = std::get_if<BatchRequest>(&parsed);
  auto* error = std::get_if<LineError>(&parsed);
  const std::optional<std::string> custom_id =
      request != nullptr ? std::optional(request->header.custom_id) : error->custom_id;
  const LineIds::Met met = custom_id ? ids_.meet(*custom_id) : LineIds::Met::first;
  if (met == LineIds::Met::answered || ids_.has_error(line.number, custom_id)) {
    return AnsweredBefore{};
  }
  if (met == LineIds::Met::duplicate) {
    return LineError{line.number, std::string(line_error::duplicate_custom_id),
                     "an earlier line has the same custom_id", custom_id, "custom_id"};
  }
  if (error != nullptr) return std::move(*error);
  return std::move(*request);
}

}  // namespace troupe
