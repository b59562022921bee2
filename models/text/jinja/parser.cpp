#include "models/text/jinja/parser.hpp"

#include <initializer_list>

#include "models/text/jinja/expression_parser.hpp"

namespace troupe::jinja {
namespace {

using Kind = Token::Kind;

constexpr int deepest_nesting = 50;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : cursor_(std::move(tokens)), expressions_(cursor_) {}

  Block run() {
    Block block = parse_until({});
    if (!cursor_.sees(Kind::end)) cursor_.unexpected("the end of the template");
    return block;
  }

 private:
  /// Statements up to a tag called one of `ends` (its name is the next token then), or, without
  /// any, to the end of the template.
  Block parse_until(std::initializer_list<std::string_view> ends) {
    if (++depth_ > deepest_nesting)
      throw Failure{ErrorCode::unsupported,
                    fmt::format("tags nested more than {} deep", deepest_nesting), cursor_.line()};
    Block block;
    for (;;) {
      const int line = cursor_.line();
      if (cursor_.sees(Kind::text)) {
        block.push_back({line, OutputText{cursor_.take().text}});
      } else if (cursor_.skip(Kind::print_begin)) {
        block.push_back({line, OutputValue{expressions_.parse_tuple(true)}});
        cursor_.expect(Kind::print_end);
      } else if (cursor_.skip(Kind::block_begin)) {
        for (const std::string_view end : ends) {
          if (cursor_.sees_name(end)) {
            --depth_;
            return block;
          }
        }
        block.push_back(parse_tag(line));
      } else if (ends.size() == 0) {
        --depth_;
        return block;
      } else {
        cursor_.unexpected(*(ends.end() - 1));
      }
    }
  }

  /// Takes the name of the closing tag, which parse_until left, and its end.
  void close_tag(std::string_view name) {
    cursor_.expect_name(name);
    cursor_.expect(Kind::block_end);
  }

  Block parse_body(std::string_view end) {
    cursor_.expect(Kind::block_end);
    Block body = parse_until({end});
    close_tag(end);
    return body;
  }

  Statement parse_tag(int line) {
    const Token tag = cursor_.expect(Kind::name);
    if (tag.text == "set") return {line, std::make_unique<const Set>(parse_set())};
    if (tag.text == "if") return {line, std::make_unique<const If>(parse_if())};
    if (tag.text == "for") return {line, std::make_unique<const For>(parse_for())};
    if (tag.text == "macro") return {line, parse_macro()};
    if (tag.text == "generation") return {line, Group{parse_body("endgeneration")}};
    if (tag.text == "break" || tag.text == "continue") {
      cursor_.expect(Kind::block_end);
      return {line, tag.text == "break" ? Jump::leave_loop : Jump::next_iteration};
    }
    for (const std::string_view known : {"include", "extends", "import", "from", "block", "call",
                                         "filter", "with", "autoescape", "do", "trans"})
      if (tag.text == known)
        throw Failure{ErrorCode::unsupported, fmt::format("the tag '{}'", tag.text), line};
    throw Failure{ErrorCode::corrupt_data, fmt::format("unknown tag '{}'", tag.text), line};
  }

  Target parse_target(bool may_be_attribute) {
    Target target;
    const bool has_bracket = cursor_.skip_symbol("(");
    target.names.push_back(cursor_.expect(Kind::name).text);
    if (may_be_attribute && !has_bracket && cursor_.skip_symbol(".")) {
      target.attribute = cursor_.expect(Kind::name).text;
      return target;
    }
    while (cursor_.skip_symbol(",")) {
      target.unpacks = true;
      if (!cursor_.sees(Kind::name) || cursor_.sees_name("in")) break;
      target.names.push_back(cursor_.take().text);
    }
    if (has_bracket) cursor_.expect_symbol(")");
    return target;
  }

  Set parse_set() {
    Set set{parse_target(true), nullptr, {}};
    if (cursor_.skip_symbol("=")) {
      set.value = expressions_.parse_tuple(true);
      cursor_.expect(Kind::block_end);
    } else {
      set.body = parse_body("endset");
    }
    return set;
  }

  If parse_if() {
    If result;
    for (;;) {
      ExpressionPtr condition = expressions_.parse_tuple(true);
      cursor_.expect(Kind::block_end);
      result.branches.emplace_back(std::move(condition), parse_until({"elif", "else", "endif"}));
      if (cursor_.skip_name("elif")) continue;
      if (cursor_.skip_name("else")) {
        cursor_.expect(Kind::block_end);
        result.otherwise = parse_until({"endif"});
      }
      close_tag("endif");
      return result;
    }
  }

  For parse_for() {
    For loop{parse_target(false), nullptr, nullptr, {}, {}};
    cursor_.expect_name("in");
    loop.iterable = expressions_.parse_tuple(false);
    if (cursor_.skip_name("if")) loop.condition = expressions_.parse();
    if (cursor_.sees_name("recursive"))
      throw Failure{ErrorCode::unsupported, "a recursive loop", cursor_.line()};
    cursor_.expect(Kind::block_end);
    loop.body = parse_until({"else", "endfor"});
    if (cursor_.skip_name("else")) {
      cursor_.expect(Kind::block_end);
      loop.otherwise = parse_until({"endfor"});
    }
    close_tag("endfor");
    return loop;
  }

  std::shared_ptr<const Macro> parse_macro() {
    auto macro = std::make_shared<Macro>();
    macro->name = cursor_.expect(Kind::name).text;
    cursor_.expect_symbol("(");
    while (!cursor_.sees_symbol(")")) {
      const std::string name = cursor_.expect(Kind::name).text;
      macro->parameters.emplace_back(name,
                                     cursor_.skip_symbol("=") ? expressions_.parse() : nullptr);
      if (!cursor_.skip_symbol(",")) break;
    }
    cursor_.expect_symbol(")");
    macro->body = parse_body("endmacro");
    return macro;
  }

  TokenCursor cursor_;
  ExpressionParser expressions_;
  int depth_ = 0;
};

}  // namespace

Block parse(std::vector<Token> tokens) { return Parser(std::move(tokens)).run(); }

}  // namespace troupe::jinja
