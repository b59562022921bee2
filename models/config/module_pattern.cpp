#include "models/config/module_pattern.hpp"

#include <regex>

namespace troupe {
namespace {

constexpr std::string_view expression_prefix = "re:";
/// Expressions of published checkpoints are shorter; the matcher recurses with their length.
constexpr std::size_t max_expression = 512;

/// True if `text` is what a pattern with "*" says.
bool matches_wildcards(std::string_view pattern, std::string_view text) {
  std::size_t at = 0, from = 0;
  std::size_t star = std::string_view::npos, retry = 0;
  while (from < text.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      retry = from;
    } else if (at < pattern.size() && pattern[at] == text[from]) {
      ++at;
      ++from;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      from = ++retry;
    } else {
      return false;
    }
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

/// True if `name` is some whole parts of the path `module`.
bool is_within(std::string_view name, std::string_view module) {
  for (std::size_t at = module.find(name); at != std::string_view::npos;
       at = module.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    const bool begins = at == 0 || module[at - 1] == '.';
    const bool ends = end == module.size() || module[end] == '.';
    if (begins && ends) return true;
  }
  return false;
}

}  // namespace

struct ModulePattern::Expression {
  std::regex regex;
};

Result<ModulePattern> ModulePattern::parse(std::string_view text) {
  ModulePattern pattern(text);
  if (!text.starts_with(expression_prefix)) return pattern;
  const std::string expression(text.substr(expression_prefix.size()));
  if (expression.size() > max_expression) {
    return fail(ErrorCode::unsupported, "\"{}...\": an expression of more than {} characters",
                text.substr(0, 60), max_expression);
  }
  try {
    pattern.expression_ = std::make_shared<const Expression>(
        Expression{std::regex(expression, std::regex::ECMAScript | std::regex::optimize)});
  } catch (const std::regex_error& error) {
    return fail(ErrorCode::unsupported, "\"{}\": not an expression of ECMAScript: {}", text,
                error.what());
  }
  return pattern;
}

bool ModulePattern::is_about(std::string_view module) const {
  if (expression_ != nullptr) {
    return std::regex_search(module.begin(), module.end(), expression_->regex,
                             std::regex_constants::match_continuous);
  }
  if (text_ == "Linear") return true;
  if (text_.empty()) return false;
  if (text_.find('*') == std::string::npos) return is_within(text_, module);
  return matches_wildcards(text_, module) || matches_wildcards(text_ + ".*", module);
}

}  // namespace troupe
