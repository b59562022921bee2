#include "models/text/json_file.hpp"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

namespace troupe::text {

Result<std::string> read_text_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    return fail(ErrorCode::not_found, "no file {}", path.string());
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad() || !file.is_open()) return fail_errno(errno, "cannot read " + path.string());
  return text;
}

Result<> check_sequence_depth(int depth) {
  if (depth < deepest_sequence) return {};
  return fail(ErrorCode::corrupt_data, "more than {} Sequences in each other", deepest_sequence);
}

Result<nlohmann::json> read_json_file(const std::filesystem::path& path) {
  TROUPE_TRY(const std::string text, read_text_file(path));
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    return fail(ErrorCode::corrupt_data, "{} is not JSON: {}", path.string(), error.what());
  }
}

}  // namespace troupe::text
