#include "models/config/module_pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace troupe {
namespace {

constexpr std::string_view expression_prefix = "re:";

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
  pcre2_code* code;

  explicit Expression(pcre2_code* compiled) : code(compiled) {}
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;
  ~Expression() { pcre2_code_free(code); }

  /// False also if it takes more steps than PCRE2's limit.
  bool matches_beginning_of(std::string_view text) const {
    const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
        pcre2_match_data_create_from_pattern(code, nullptr), &pcre2_match_data_free);
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                       PCRE2_ANCHORED, match.get(), nullptr) >= 0;
  }
};

Result<ModulePattern> ModulePattern::parse(std::string_view text) {
  ModulePattern pattern(text);
  if (!text.starts_with(expression_prefix)) return pattern;
  const std::string_view expression = text.substr(expression_prefix.size());
  int error = 0;
  PCRE2_SIZE position = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()),
                                         expression.size(), 0, &error, &position, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR why[256];
    pcre2_get_error_message(error, why, sizeof why);
    return fail(ErrorCode::unsupported, "\"{}\": not an expression: {} (character {})", text,
                reinterpret_cast<const char*>(why), position);
  }
  pattern.expression_ = std::make_shared<const Expression>(code);
  return pattern;
}

bool ModulePattern::is_about(std::string_view module) const {
  if (expression_ != nullptr) return expression_->matches_beginning_of(module);
  if (text_ == "Linear") return true;
  if (text_.empty()) return false;
  if (text_.find('*') == std::string::npos) return is_within(text_, module);
  return matches_wildcards(text_, module) || matches_wildcards(text_ + ".*", module);
}

}  // namespace troupe
