#include "launcher/journal/past_answers.hpp"

#include <array>
#include <charconv>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launcher/batch/input/line_reader.hpp"
#include "launcher/batch/output/answer_format.hpp"
#include "launcher/compression/compression.hpp"

namespace troupe {
namespace {

Error refuse_line(const std::string& path, std::size_t line, std::uint64_t good_bytes) {
  return fail(
      ErrorCode::corrupt_data,
      "line {} of the output {} is no answer of this program, and lines follow it: the file "
      "was changed or damaged. {}move it away, or replace it with --overwrite",
      line, path,
      good_bytes == 0 ? std::string()
                      : fmt::format("To go on behind the line before: truncate -s {} '{}'; "
                                    "or ",
                                    good_bytes, path));
}

/// A packed file under another name would be gone on with unpacked.
Result<void> check_not_packed(const std::string& path) {
  std::array<char, compression_magic_bytes> first{};
  std::ifstream file(path, std::ios::binary);
  file.read(first.data(), first.size());
  const std::string_view found(first.data(), static_cast<std::size_t>(file.gcount()));
  if (compression_of_content(found) == Compression::none) return {};
  return fail(ErrorCode::corrupt_data,
              "the output {} is packed, but its name does not end in .gz or .zst: unpack it, or "
              "give it (and the folder {}.job) such a name",
              path, path);
}

bool skip(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// Takes a JSON string off the beginning of `text`.
std::optional<std::string> take_string(std::string_view& text) {
  if (!text.starts_with('"')) return std::nullopt;
  std::size_t end = 1;
  bool escaped = false;
  while (end < text.size() && text[end] != '"') {
    escaped = escaped || text[end] == '\\';
    end += text[end] == '\\' ? 2 : 1;
  }
  if (end >= text.size()) return std::nullopt;
  const std::string_view quoted = text.substr(0, end + 1);
  text.remove_prefix(end + 1);
  if (!escaped) return std::string(quoted.substr(1, quoted.size() - 2));
  const auto value = nlohmann::json::parse(quoted, nullptr, false);
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}

void add(PastAnswers& past, const AnswerKey& key) {
  const std::size_t before = past.ids.size();
  if (key.is_error) {
    past.ids.add_error(key.line, key.custom_id);
  } else {
    past.ids.add_answer(*key.custom_id);
  }
  if (past.ids.size() == before) return;
  ++past.lines;
  if (key.is_error) ++past.errors;
}

}  // namespace

std::optional<AnswerKey> read_answer_key(std::string_view line) {
  if (!line.ends_with('}') || line.find('\0') != line.npos || !skip(line, "{\"id\":") ||
      !take_string(line) || !skip(line, ",\"custom_id\":")) {
    return std::nullopt;
  }
  AnswerKey key;
  if (!skip(line, "null")) {
    key.custom_id = take_string(line);
    if (!key.custom_id) return std::nullopt;
  }
  if (skip(line, ",\"response\":{")) {
    return key.custom_id ? std::optional(std::move(key)) : std::nullopt;
  }
  if (!skip(line, ",\"line\":")) return std::nullopt;
  const auto [end, problem] = std::from_chars(line.data(), line.data() + line.size(), key.line);
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  if (problem != std::errc() || !skip(line, ",\"response\":null,\"error\":{")) return std::nullopt;
  key.is_error = true;
  return key;
}

Result<PastAnswers> read_past_answers(const std::string& path, const KeepGoing& keep_going) {
  PastAnswers past;
  const Compression packing = compression_of_name(path);
  const bool packed = packing != Compression::none;
  if (packed) {
    TROUPE_TRY(past.whole_bytes, whole_member_bytes(path, packing, keep_going));
  } else {
    TROUPE_CHECK(check_not_packed(path));
  }
  TROUPE_TRY(LineReader reader, LineReader::open(path, "output", max_answer_line_bytes,
                                                 packed ? past.whole_bytes : UINT64_MAX));
  // Of the newest line it is known only with the next one that nothing was torn off it.
  std::optional<AnswerKey> newest;  // null: it is no answer
  std::string newest_text;
  std::size_t newest_line = 0;
  std::uint64_t newest_end = 0;
  std::uint64_t good_end = 0;
  for (;;) {
    TROUPE_TRY(const auto line, reader.next());
    if (!line) break;
    if (newest) {
      add(past, *newest);
      good_end = newest_end;
    } else if (newest_line > 0) {
      return refuse_line(path, newest_line, packed ? 0 : good_end);
    }
    if (line->number % LineReader::lines_between_asks == 1) {
      TROUPE_CHECK(check_goes_on(keep_going, path));
    }
    newest = line->has_newline ? read_answer_key(line->text) : std::nullopt;
    newest_text = line->text;
    newest_line = line->number;
    newest_end = line->end;
  }
  if (newest && nlohmann::json::accept(newest_text)) {
    add(past, *newest);
    good_end = newest_end;
  } else if (packed && newest_line > 0) {
    return refuse_line(path, newest_line, 0);  // a member holds whole lines
  }
  if (!packed) past.whole_bytes = good_end;
  return past;
}

}  // namespace troupe
