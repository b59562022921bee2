#include "tests/support/regex.hpp"

#include <regex>

namespace troupe::test {
namespace {

RegexMatch strings_of(const std::smatch& match) { return {match.begin(), match.end()}; }

}  // namespace

RegexMatch regex_search(const std::string& text, const std::string& pattern) {
  std::smatch match;
  std::regex_search(text, match, std::regex(pattern));
  return strings_of(match);
}

RegexMatch regex_match(const std::string& text, const std::string& pattern) {
  std::smatch match;
  std::regex_match(text, match, std::regex(pattern));
  return strings_of(match);
}

std::vector<RegexMatch> regex_search_all(const std::string& text, const std::string& pattern) {
  const std::regex compiled(pattern);
  std::vector<RegexMatch> matches;
  for (std::sregex_iterator at(text.begin(), text.end(), compiled), end; at != end; ++at) {
    matches.push_back(strings_of(*at));
  }
  return matches;
}

std::string regex_replace(const std::string& text, const std::string& pattern,
                          const std::string& replacement) {
  return std::regex_replace(text, std::regex(pattern), replacement);
}

}  // namespace troupe::test
