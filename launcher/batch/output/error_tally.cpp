#include "launcher/batch/output/error_tally.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace troupe {
namespace {

constexpr std::size_t longest_message = 300;

/// Returns at most longest_message bytes of it, cut between characters.
std::string shortened(std::string_view message) {
  if (message.size() <= longest_message) return std::string(message);
  std::size_t end = longest_message;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0U) == 0x80U) --end;
  return std::string(message.substr(0, end)) + "...";
}

}  // namespace

void ErrorTally::add(std::size_t line, std::string_view code, std::string_view message) {
  ++count;
  const auto found = by_code.find(code);
  if (found != by_code.end()) {
    ++found->second;
  } else {
    by_code.emplace(code, 1);
  }
  if (!first || line < first->line) {
    first = First{line, std::string(code), shortened(message)};
  }
}

std::string describe(const ErrorTally& errors) {
  if (errors.count == 0) return "";
  std::vector<std::pair<std::string, std::uint64_t>> codes(errors.by_code.begin(),
                                                           errors.by_code.end());
  std::ranges::stable_sort(codes, std::ranges::greater(),
                           &std::pair<std::string, std::uint64_t>::second);
  std::string text = fmt::format("{} error line{}:", errors.count, errors.count == 1 ? "" : "s");
  for (std::size_t i = 0; i < codes.size(); ++i) {
    text += fmt::format("{} {} {}", i == 0 ? "" : ",", codes[i].second, codes[i].first);
  }
  return text + fmt::format("; line {}: {}", errors.first->line, errors.first->message);
}

}  // namespace troupe
