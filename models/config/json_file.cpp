#include "models/config/json_file.hpp"

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

/// What is left of nlohmann's message once its own prefix and position are cut off.
std::string_view reason(std::string_view message) {
  const std::size_t position = message.find(": ");
  return position == std::string_view::npos ? message : message.substr(position + 2);
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

Result<nlohmann::json> parse_json_object(std::string_view text, std::string_view where) {
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
