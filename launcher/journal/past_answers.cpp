#include "launcher/journal/past_answers.hpp"

#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launcher/batch/line_reader.hpp"
#include "launcher/compression/compression.hpp"

namespace troupe {
namespace {

/// An answer of 128 choices with all their scores stays below.
constexpr std::size_t longest_answer = std::size_t{1} << 30;

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
  if (!line.ends_with('}') || !skip(line, "{\"id\":") || !take_string(line) ||
      !skip(line, ",\"custom_id\":")) {
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

Result<PastAnswers> read_past_answers(const std::string& path) {
  PastAnswers past;
  const Compression packing = compression_of_name(path);
  if (packing != Compression::none) {
    TROUPE_TRY(past.whole_bytes, whole_member_bytes(path, packing));
  }
  TROUPE_TRY(LineReader reader,
             LineReader::open(path, "output", longest_answer,
                              packing == Compression::none ? UINT64_MAX : past.whole_bytes));
  const auto refuse = [&](std::size_t line) {
    return fail(ErrorCode::corrupt_data,
                "line {} of the output {} is no answer of this program, and lines follow it: the "
                "file was changed. Move it away, or replace it with --overwrite",
                line, path);
  };
  // Of the newest line it is known only with the next one that nothing was torn off it.
  std::optional<AnswerKey> newest;
  std::string newest_text;
  std::uint64_t newest_end = 0;
  std::uint64_t good_end = 0;
  std::size_t broken_line = 0;
  for (;;) {
    TROUPE_TRY(const auto line, reader.next());
    if (!line) break;
    if (broken_line > 0) return refuse(broken_line);
    if (newest) {
      add(past, *newest);
      good_end = newest_end;
    }
    newest = line->has_newline ? read_answer_key(line->text) : std::nullopt;
    newest_end = line->end;
    if (newest) {
      newest_text = line->text;
    } else {
      broken_line = line->number;
    }
  }
  if (newest && nlohmann::json::accept(newest_text)) {
    add(past, *newest);
    good_end = newest_end;
  } else if (newest || broken_line > 0) {
    if (packing != Compression::none) return refuse(broken_line);  // a member holds whole lines
  }
  if (packing == Compression::none) past.whole_bytes = good_end;
  return past;
}

}  // namespace troupe
