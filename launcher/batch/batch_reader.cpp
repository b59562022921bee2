#include "launcher/batch/batch_reader.hpp"

#include <utility>

namespace troupe {

Result<BatchReader> BatchReader::open(const std::string& path, ParseContext context) {
  TROUPE_TRY(LineReader lines, LineReader::open(path, "input", max_line_bytes));
  return BatchReader(std::move(lines), std::move(context));
}

BatchReader::BatchReader(LineReader lines, ParseContext context)
    : lines_(std::move(lines)), context_(std::move(context)) {}

Result<std::optional<std::variant<BatchRequest, LineError>>> BatchReader::next() {
  using Item = std::variant<BatchRequest, LineError>;
  TROUPE_TRY(const std::optional<LineReader::Line> line, lines_.next());
  if (!line) return std::optional<Item>{};
  if (line->too_long) {
    return std::optional<Item>(
        LineError{line->number,
                  std::string(line_error::line_too_long),
                  fmt::format("the line is longer than {} MiB", max_line_bytes >> 20),
                  {}});
  }
  Item item = parse_line(line->text, line->number, context_);
  const auto* request = std::get_if<BatchRequest>(&item);
  const auto* error = std::get_if<LineError>(&item);
  const std::string* custom_id = request != nullptr ? &request->header.custom_id
                                 : error->custom_id ? &*error->custom_id
                                                    : nullptr;
  if (custom_id != nullptr && !seen_.insert(*custom_id)) {
    LineError duplicate{line->number, std::string(line_error::duplicate_custom_id),
                        "an earlier line has the same custom_id", *custom_id};
    return std::optional<Item>(std::move(duplicate));
  }
  return std::optional<Item>(std::move(item));
}

}  // namespace troupe
