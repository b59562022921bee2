#include "models/json/json_file.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>

namespace troupe {

namespace {

constexpr std::size_t config_limit_bytes = 64UL << 20;

struct LineColumn {
  std::size_t line = 1;
  std::size_t column = 1;
};

LineColumn locate(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto lines = static_cast<std::size_t>(std::ranges::count(before, '\n'));
  const std::size_t last_break = before.rfind('\n');
  const std::size_t line_start = last_break == std::string_view::npos ? 0 : last_break + 1;
  return {lines + 1, before.size() - line_start + 1};
}

/// Returns nlohmann's message without its prefix, its position and its quotation of the input,
/// which may be as long as the file.
std::string_view reason(std::string_view message) {
  const std::size_t position = message.find(": ");
  if (position != std::string_view::npos) message.remove_prefix(position + 2);
  return message.substr(0, message.find("; last read"));
}

}  // namespace

Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t limit_bytes) {
  std::error_code status;
  const bool regular = std::filesystem::is_regular_file(path, status);
  if (!regular) return fail(ErrorCode::not_found, "{}: no such file", path.string());
  const std::uintmax_t size = std::filesystem::file_size(path, status);
  if (status) return fail_errno(status.value(), path.string());
  if (size > limit_bytes) {
    return fail(ErrorCode::corrupt_data, "{}: {} bytes, more than the {} such a file may have",
                path.string(), size, limit_bytes);
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(size, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    return fail_errno(errno, fmt::format("cannot read {}", path.string()));
  }
  return text;
}

Result<void> check_json_limits(std::string_view text, std::string_view where) {
  int depth = 0;
  std::size_t values = 1;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++depth;
      ++values;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',') {
      ++values;
    }
    if (depth <= max_checkpoint_json_depth && values <= max_checkpoint_json_values) continue;
    const auto [line, column] = locate(text, i);
    if (depth > max_checkpoint_json_depth) {
      return fail(ErrorCode::corrupt_data, "{}:{}:{}: nested deeper than {} levels", where, line,
                  column, max_checkpoint_json_depth);
    }
    return fail(ErrorCode::corrupt_data, "{}:{}:{}: more than {} values", where, line, column,
                max_checkpoint_json_values);
  }
  return {};
}

Result<nlohmann::json> parse_json_object(std::string_view text, std::string_view where) {
  TROUPE_CHECK(check_json_limits(text, where));
  try {
    auto parsed = nlohmann::json::parse(text);
    if (!parsed.is_object()) {
      return fail(ErrorCode::corrupt_data, "{}: expected a JSON object, found {}", where,
                  parsed.type_name());
    }
    return parsed;
  } catch (const nlohmann::json::parse_error& error) {
    const auto [line, column] = locate(text, error.byte > 0 ? error.byte - 1 : 0);
    return fail(ErrorCode::corrupt_data, "{}:{}:{}: not valid JSON: {}", where, line, column,
                reason(error.what()));
  } catch (const nlohmann::json::exception& error) {
    return fail(ErrorCode::corrupt_data, "{}: not valid JSON: {}", where, error.what());
  }
}

Result<nlohmann::json> read_json_object(const std::filesystem::path& path) {
  TROUPE_TRY(const std::string text, read_text_file(path, config_limit_bytes));
  return parse_json_object(text, path.string());
}

}  // namespace troupe
