#include "launcher/cli/comma_separated.hpp"

namespace troupe {

std::vector<std::string_view> comma_separated(std::string_view text) {
  std::vector<std::string_view> words;
  for (auto comma = text.find(','); comma != text.npos; comma = text.find(',')) {
    words.push_back(text.substr(0, comma));
    text.remove_prefix(comma + 1);
  }
  words.push_back(text);
  return words;
}

}  // namespace troupe
