#include "launcher/journal/past_answers.hpp"

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launcher/batch/input/line_reader.hpp"
#include "launcher/batch/output/answer_format.hpp"
#include "launcher/batch/output/batch_writer.hpp"
#include "launcher/compression/compression.hpp"
#include "runtime/base/sync.hpp"

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

/// Refuses a packed file under another name, which would be appended to unpacked.
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

/// Reads an error line's fields after its custom_id. Quotes inside strings are escaped, so the last
/// member cannot be mistaken.
bool take_error(std::string_view text, AnswerKey& key) {
  if (!skip(text, ",\"line\":")) return false;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), key.line);
  if (problem != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  constexpr std::string_view last_member = ",\"error\":{\"code\":";
  const std::size_t place = text.rfind(last_member);
  if (!text.starts_with(",\"response\":{") || place == text.npos) return false;
  text.remove_prefix(place + last_member.size());
  auto code = take_string(text);
  if (!code || !skip(text, ",\"message\":")) return false;
  auto message = take_string(text);
  if (!message || text != "}}") return false;
  key.code = *std::move(code);
  key.message = *std::move(message);
  return true;
}

void add(PastAnswers& past, const AnswerKey& key, const AskedAgain& asked_again) {
  if (key.is_error && asked_again && asked_again(key)) {
    ++past.retried;
    return;
  }
  const std::size_t before = past.ids.size();
  if (key.is_error) {
    past.ids.add_error(key.line, key.custom_id);
  } else {
    past.ids.add_answer(*key.custom_id);
  }
  if (past.ids.size() == before) return;
  ++past.lines;
  if (key.is_error) past.errors.add(key.line, key.code, key.message);
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
  key.is_error = true;
  return take_error(line, key) ? std::optional(std::move(key)) : std::nullopt;
}

Result<PastAnswers> read_past_answers(const std::string& path, const AskedAgain& asked_again,
                                      const KeepGoing& keep_going) {
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
  // Only the next line shows that the newest one is whole.
  std::optional<AnswerKey> newest;  // null: it is no answer
  std::string newest_text;
  std::size_t newest_line = 0;
  std::uint64_t newest_end = 0;
  std::uint64_t good_end = 0;
  for (;;) {
    TROUPE_TRY(const auto line, reader.next());
    if (!line) break;
    if (newest) {
      add(past, *newest, asked_again);
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
    add(past, *newest, asked_again);
    good_end = newest_end;
  } else if (packed && newest_line > 0) {
    return refuse_line(path, newest_line, 0);  // a member holds whole lines
  }
  if (!packed) past.whole_bytes = good_end;
  return past;
}

Result<std::uint64_t> drop_error_lines(const std::string& path, std::uint64_t whole_bytes,
                                       const AskedAgain& asked_again, const KeepGoing& keep_going) {
  namespace fs = std::filesystem;
  std::error_code problem;
  const fs::path target = fs::canonical(path, problem);  // a link stays one
  if (problem) return fail(ErrorCode::io, "cannot read the output {}: {}", path, problem.message());
  // Packed the same way: the extension decides.
  const std::string kept = target.string() + ".kept" + target.extension().string();
  TROUPE_TRY(LineReader reader,
             LineReader::open(path, "output", max_answer_line_bytes, whole_bytes));
  TROUPE_TRY(BatchWriter writer, BatchWriter::open(kept, {.input_path = path}));
  for (;;) {
    TROUPE_TRY(const auto line, reader.next());
    if (!line) break;
    if (line->number % LineReader::lines_between_asks == 1) {
      TROUPE_CHECK(check_goes_on(keep_going, path));
    }
    const auto key = read_answer_key(line->text);
    if (key && key->is_error && asked_again(*key)) continue;
    TROUPE_CHECK(writer.append(line->text));
  }
  TROUPE_CHECK(writer.finish());
  const auto size = fs::file_size(kept, problem);
  if (!problem) fs::permissions(kept, fs::status(target).permissions(), problem);
  if (!problem) fs::rename(kept, target, problem);
  if (problem)
    return fail(ErrorCode::io, "cannot write the output {}: {}", path, problem.message());
  (void)sync_names_in(target.parent_path().string());  // where the file system can
  return size;
}

}  // namespace troupe
