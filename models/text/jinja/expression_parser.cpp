#include "models/text/jinja/expression_parser.hpp"

#include <array>
#include <charconv>
#include <optional>

#include "models/text/jinja/expression_depth.hpp"

namespace troupe::jinja {
namespace {

using Kind = Token::Kind;

constexpr int max_nesting = 100;
constexpr int max_tree_depth = 200;  // as deep as Python compiles it for Jinja

[[noreturn]] void throw_too_deep(int line) {
  throw Failure{ErrorCode::unsupported,
                fmt::format("an expression nested more than {} deep", max_tree_depth), line};
}

template <class Form>
ExpressionPtr make(int line, Form form) {
  auto expression = std::make_unique<Expression>(Expression{line, 0, std::move(form)});
  expression->depth = depth_of(expression->form);
  if (expression->depth > max_tree_depth) throw_too_deep(line);
  return expression;
}

struct Nesting {
  Nesting(int& depth, int line) : depth_(depth) {
    if (++depth_ > max_nesting) throw_too_deep(line);
  }
  ~Nesting() { --depth_; }
  int& depth_;
};

/// The value of an integer token. Throws for one of more than 64 bits.
std::int64_t integer_of(const Token& token) {
  std::int64_t value = 0;
  const char* end = token.text.data() + token.text.size();
  if (std::from_chars(token.text.data(), end, value).ec != std::errc{})
    throw Failure{ErrorCode::unsupported, "the integer " + token.text, token.line};
  return value;
}

}  // namespace

ExpressionPtr ExpressionParser::parse() {
  const Nesting nesting(depth_, cursor_.line());
  ExpressionPtr value = parse_or();
  while (cursor_.sees_name("if")) {
    const int line = cursor_.take().line;
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise = cursor_.skip_name("else") ? parse() : nullptr;
    value = make(line, Conditional{std::move(condition), std::move(value), std::move(otherwise)});
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_conditional) {
  const int line = cursor_.line();
  const auto parse_item = [&] { return with_conditional ? parse() : parse_or(); };
  ExpressionPtr first = parse_item();
  if (!cursor_.sees_symbol(",")) return first;
  ListLiteral tuple{{}, true};
  tuple.items.push_back(std::move(first));
  while (cursor_.skip_symbol(",")) {
    if (cursor_.sees(Kind::print_end) || cursor_.sees(Kind::block_end) || cursor_.sees_symbol(")"))
      break;
    tuple.items.push_back(parse_item());
  }
  return make(line, std::move(tuple));
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (cursor_.sees_name("or")) {
    const int line = cursor_.take().line;
    ExpressionPtr right = parse_and();
    left = make(line, Logical{false, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (cursor_.sees_name("and")) {
    const int line = cursor_.take().line;
    ExpressionPtr right = parse_not();
    left = make(line, Logical{true, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!cursor_.sees_name("not")) return parse_comparison();
  const Nesting nesting(depth_, cursor_.line());
  const int line = cursor_.take().line;
  return make(line, Unary{UnaryOperator::logical_not, parse_not()});
}

ExpressionPtr ExpressionParser::parse_comparison() {
  const int line = cursor_.line();
  constexpr std::array<std::pair<std::string_view, Comparison>, 6> symbols = {
      {{"==", Comparison::equal},
       {"!=", Comparison::unequal},
       {"<", Comparison::less},
       {"<=", Comparison::less_equal},
       {">", Comparison::greater},
       {">=", Comparison::greater_equal}}};
  Compare compare{parse_sum(), {}};
  for (;;) {
    std::optional<Comparison> found;
    for (const auto& [symbol, comparison] : symbols)
      if (!found && cursor_.skip_symbol(symbol)) found = comparison;
    if (!found && cursor_.skip_name("in")) found = Comparison::in;
    if (!found && cursor_.sees_name("not") && cursor_.peek(1).kind == Kind::name &&
        cursor_.peek(1).text == "in") {
      cursor_.take();
      cursor_.take();
      found = Comparison::not_in;
    }
    if (!found) break;
    compare.rest.emplace_back(*found, parse_sum());
  }
  if (compare.rest.empty()) return std::move(compare.first);
  return make(line, std::move(compare));
}

ExpressionPtr ExpressionParser::parse_sum() {
  ExpressionPtr left = parse_concatenation();
  while (cursor_.sees_symbol("+") || cursor_.sees_symbol("-")) {
    const Token symbol = cursor_.take();
    ExpressionPtr right = parse_concatenation();
    left = make(symbol.line,
                Binary{symbol.text == "+" ? BinaryOperator::add : BinaryOperator::subtract,
                       std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  const int line = cursor_.line();
  ExpressionPtr first = parse_product();
  if (!cursor_.sees_symbol("~")) return first;
  Concatenation concatenation;
  concatenation.parts.push_back(std::move(first));
  while (cursor_.skip_symbol("~")) concatenation.parts.push_back(parse_product());
  return make(line, std::move(concatenation));
}

ExpressionPtr ExpressionParser::parse_product() {
  ExpressionPtr left = parse_power();
  for (;;) {
    const std::string& symbol = cursor_.peek().text;
    if (!cursor_.sees(Kind::symbol)) return left;
    BinaryOperator op;
    if (symbol == "*") {
      op = BinaryOperator::multiply;
    } else if (symbol == "/") {
      op = BinaryOperator::divide;
    } else if (symbol == "//") {
      op = BinaryOperator::floor_divide;
    } else if (symbol == "%") {
      op = BinaryOperator::modulo;
    } else {
      return left;
    }
    const int line = cursor_.take().line;
    ExpressionPtr right = parse_power();
    left = make(line, Binary{op, std::move(left), std::move(right)});
  }
}

ExpressionPtr ExpressionParser::parse_power() {
  ExpressionPtr left = parse_unary();
  while (cursor_.sees_symbol("**")) {
    const int line = cursor_.take().line;
    ExpressionPtr right = parse_unary();
    left = make(line, Binary{BinaryOperator::power, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary() { return parse_signed(true); }

ExpressionPtr ExpressionParser::parse_signed(bool with_filters) {
  const Nesting nesting(depth_, cursor_.line());
  ExpressionPtr value;
  if (cursor_.sees_symbol("-") || cursor_.sees_symbol("+")) {
    const Token sign = cursor_.take();
    const auto op = sign.text == "-" ? UnaryOperator::negate : UnaryOperator::plus;
    value = make(sign.line, Unary{op, parse_signed(false)});
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::parse_name(const Token& token) {
  if (token.text == "true" || token.text == "True") return make(token.line, Literal{true});
  if (token.text == "false" || token.text == "False") return make(token.line, Literal{false});
  if (token.text == "none" || token.text == "None") return make(token.line, Literal{});
  macro_names_.caller |= token.text == "caller";
  macro_names_.varargs |= token.text == "varargs";
  macro_names_.kwargs |= token.text == "kwargs";
  return make(token.line, Name{token.text});
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token token = cursor_.take();
  switch (token.kind) {
    case Kind::name:
      return parse_name(token);
    case Kind::string: {
      std::string text = token.text;
      while (cursor_.sees(Kind::string)) text += cursor_.take().text;
      return make(token.line, Literal{Value(text)});
    }
    case Kind::integer:
      return make(token.line, Literal{Value(integer_of(token))});
    case Kind::number:
      // Values outside a double's range give infinity or 0, as in Python.
      return make(token.line, Literal{Value(std::strtod(token.text.c_str(), nullptr))});
    case Kind::symbol:
      if (token.text == "(") return parse_list(")", token.line);
      if (token.text == "[") return parse_list("]", token.line);
      if (token.text == "{") return parse_dict(token.line);
      [[fallthrough]];
    default:
      throw Failure{ErrorCode::corrupt_data,
                    fmt::format("expected a value, found '{}'",
                                token.text.empty() ? "end of tag" : token.text),
                    token.line};
  }
}

ExpressionPtr ExpressionParser::parse_list(std::string_view closing, int line) {
  ListLiteral list{{}, closing == ")"};
  bool has_comma = false;
  while (!cursor_.sees_symbol(closing)) {
    list.items.push_back(parse());
    if (!cursor_.skip_symbol(",")) break;
    has_comma = true;
  }
  cursor_.expect_symbol(closing);
  if (list.is_tuple && list.items.size() == 1 && !has_comma) return std::move(list.items[0]);
  return make(line, std::move(list));
}

ExpressionPtr ExpressionParser::parse_dict(int line) {
  DictLiteral dict;
  while (!cursor_.sees_symbol("}")) {
    ExpressionPtr key = parse();
    cursor_.expect_symbol(":");
    dict.entries.emplace_back(std::move(key), parse());
    if (!cursor_.skip_symbol(",")) break;
  }
  cursor_.expect_symbol("}");
  return make(line, std::move(dict));
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr operand) {
  for (;;) {
    const int line = cursor_.line();
    if (cursor_.skip_symbol(".")) {
      if (cursor_.sees(Kind::integer)) {
        const std::int64_t index = integer_of(cursor_.take());
        operand = make(line, Subscript{std::move(operand), make(line, Literal{Value(index)})});
      } else {
        operand = make(line, Attribute{std::move(operand), cursor_.expect(Kind::name).text});
      }
    } else if (cursor_.skip_symbol("[")) {
      operand = parse_subscript(std::move(operand));
    } else if (cursor_.skip_symbol("(")) {
      operand = make(line, Call{std::move(operand), parse_arguments()});
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr operand) {
  for (;;) {
    const int line = cursor_.line();
    if (cursor_.skip_symbol("|")) {
      operand = parse_filter(std::move(operand));
    } else if (cursor_.skip_name("is")) {
      operand = parse_test(std::move(operand));
    } else if (cursor_.skip_symbol("(")) {
      operand = make(line, Call{std::move(operand), parse_arguments()});
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr operand) {
  const int line = cursor_.line();
  const std::string name = cursor_.expect(Kind::name).text;
  ArgumentList arguments;
  if (cursor_.skip_symbol("(")) arguments = parse_arguments();
  return make(line, Filter{std::move(operand), name, std::move(arguments)});
}

ExpressionPtr ExpressionParser::parse_block_filter() {
  ExpressionPtr filter = parse_filter(nullptr);
  while (cursor_.skip_symbol("|")) filter = parse_filter(std::move(filter));
  return filter;
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr operand) {
  const int line = cursor_.line();
  ExpressionPtr parts[3];
  int count = 0;
  bool is_slice = false;
  for (;;) {
    if (!cursor_.sees_symbol(":") && !cursor_.sees_symbol("]")) parts[count] = parse();
    if (count == 2 || !cursor_.skip_symbol(":")) break;
    is_slice = true;
    ++count;
  }
  cursor_.expect_symbol("]");
  if (is_slice) {
    return make(line, Slice{std::move(operand), std::move(parts[0]), std::move(parts[1]),
                            std::move(parts[2])});
  }
  if (!parts[0]) throw Failure{ErrorCode::corrupt_data, "an empty subscript", line};
  return make(line, Subscript{std::move(operand), std::move(parts[0])});
}

ArgumentList ExpressionParser::parse_arguments() {
  ArgumentList arguments;
  while (!cursor_.sees_symbol(")")) {
    parse_argument(arguments);
    if (!cursor_.skip_symbol(",")) break;
  }
  cursor_.expect_symbol(")");
  return arguments;
}

void ExpressionParser::parse_argument(ArgumentList& arguments) {
  const bool has_spread = arguments.spread || arguments.named_spread;
  const Token& next = cursor_.peek(1);
  if (cursor_.sees_symbol("*") && !has_spread) {
    cursor_.take();
    arguments.spread = parse();
  } else if (cursor_.sees_symbol("**") && !arguments.named_spread) {
    cursor_.take();
    arguments.named_spread = parse();
  } else if (cursor_.sees(Kind::name) && next.kind == Kind::symbol && next.text == "=" &&
             !arguments.named_spread) {
    const std::string name = cursor_.take().text;
    cursor_.take();
    for (const auto& [known, value] : arguments.named)
      if (known == name) cursor_.unexpected("an argument that is not given twice");
    arguments.named.emplace_back(name, parse());
  } else {
    if (has_spread || !arguments.named.empty()) cursor_.unexpected("a named argument");
    arguments.positional.push_back(parse());
  }
}

bool ExpressionParser::sees_test_argument() const {
  switch (cursor_.peek().kind) {
    case Kind::string:
    case Kind::integer:
    case Kind::number:
      return true;
    case Kind::symbol:
      return cursor_.sees_symbol("(") || cursor_.sees_symbol("[") || cursor_.sees_symbol("{");
    case Kind::name:
      return !cursor_.sees_name("else") && !cursor_.sees_name("or") && !cursor_.sees_name("and");
    default:
      return false;
  }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr operand) {
  const int line = cursor_.line();
  const bool is_negated = cursor_.skip_name("not");
  Test test{std::move(operand), cursor_.expect(Kind::name).text, {}, is_negated};
  if (cursor_.skip_symbol("(")) {
    test.arguments = parse_arguments();
  } else if (sees_test_argument()) {
    if (cursor_.sees_name("is")) cursor_.unexpected("'and', for tests are not chained by 'is'");
    test.arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  return make(line, std::move(test));
}

}  // namespace troupe::jinja
