#pragma once

#include "models/text/jinja/syntax.hpp"
#include "models/text/jinja/token_cursor.hpp"

namespace troupe::jinja {

/// Parses expressions, with Jinja's precedence; each function is one level of it. Throws Failure.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenCursor& cursor) : cursor_(cursor) {}

  /// Parses `a if b else c` and everything that binds tighter.
  ExpressionPtr parse();

  /// Without the conditional, for `for x in y if z`.
  ExpressionPtr parse_or();

  /// One expression, or a tuple if commas follow.
  ExpressionPtr parse_tuple(bool with_conditional);

  /// Parses the filters of a block, e.g. `upper | trim`, whose innermost operand is null.
  ExpressionPtr parse_block_filter();

  /// Records which of `caller`, `varargs` and `kwargs` a macro has mentioned so far.
  struct MacroNames {
    bool caller = false, varargs = false, kwargs = false;
  };
  MacroNames& macro_names() { return macro_names_; }

 private:
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary();
  ExpressionPtr parse_signed(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name(const Token& token);
  ExpressionPtr parse_list(std::string_view closing, int line);
  ExpressionPtr parse_dict(int line);
  ExpressionPtr parse_postfix(ExpressionPtr operand);
  ExpressionPtr parse_filters(ExpressionPtr operand);
  ExpressionPtr parse_filter(ExpressionPtr operand);
  ExpressionPtr parse_subscript(ExpressionPtr operand);
  ExpressionPtr parse_test(ExpressionPtr operand);
  ArgumentList parse_arguments();
  void parse_argument(ArgumentList& arguments);
  bool sees_test_argument() const;

  TokenCursor& cursor_;
  MacroNames macro_names_;
  int depth_ = 0;
};

}  // namespace troupe::jinja
