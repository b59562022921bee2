#include "launcher/bench/common/lengths_csv.hpp"

#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>

namespace troupe {
namespace {

constexpr std::string_view header = "prompt_tokens,max_tokens";
constexpr std::int32_t longest = 1 << 24;

std::optional<std::int32_t> length(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value >= 1 && value <= longest ? std::optional(value) : std::nullopt;
}

}  // namespace

Result<std::vector<RequestLengths>> read_lengths_csv(const std::string& path, std::size_t most) {
  std::ifstream file(path);
  if (!file) return fail(ErrorCode::not_found, "cannot read --workload {}", path);
  std::vector<RequestLengths> requests;
  std::size_t number = 0;
  for (std::string line; requests.size() < most && std::getline(file, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || (number == 1 && line == header)) continue;
    const std::string_view text = line;
    const std::size_t comma = text.find(',');
    const auto prompt = length(text.substr(0, comma));
    const auto answer = comma == text.npos ? std::nullopt : length(text.substr(comma + 1));
    if (!prompt || !answer) {
      return fail(ErrorCode::invalid_argument,
                  "{}:{}: expected two numbers of tokens, found \"{}\"", path, number,
                  text.substr(0, 40));
    }
    requests.push_back({*prompt, *answer, number});
  }
  if (requests.empty()) {
    return fail(ErrorCode::invalid_argument, "--workload {} has no requests", path);
  }
  return requests;
}

}  // namespace troupe
