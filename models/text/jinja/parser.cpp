#include "models/text/jinja/parser.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "models/text/jinja/expression_parser.hpp"

namespace troupe::jinja {
namespace {

using Kind = Token::Kind;

constexpr int max_nesting = 100;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : cursor_(std::move(tokens)), expressions_(cursor_) {}

  Block run() {
    Block block = parse_until({});
    if (!cursor_.sees(Kind::end)) cursor_.unexpected("the end of the template");
    return block;
  }

 private:
  struct Nesting {
    explicit Nesting(Parser& parser) : depth(parser.depth_) {
      if (++depth > max_nesting)
        throw Failure{ErrorCode::unsupported,
                      fmt::format("tags nested more than {} deep", max_nesting),
                      parser.cursor_.line()};
    }
    ~Nesting() { --depth; }
    int& depth;
  };

  /// Parses statements up to a tag named by one of `ends` (its name is the next token then), or, if
  /// `ends` is empty, to the end of the template.
  Block parse_until(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(*this);
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
          if (cursor_.sees_name(end)) return block;
        }
        block.push_back(parse_tag(line));
      } else if (ends.size() == 0) {
        return block;
      } else {
        cursor_.unexpected(*(ends.end() - 1));
      }
    }
  }

  /// Consumes the name of the closing tag, at which parse_until stopped, and its end.
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
    if (tag.text == "call") return {line, parse_call()};
    if (tag.text == "filter") return {line, parse_filter()};
    if (tag.text == "with") return {line, parse_with()};
    if (tag.text == "generation") return {line, With{{}, parse_body("endgeneration")}};
    if (tag.text == "break" || tag.text == "continue") {
      cursor_.expect(Kind::block_end);
      return {line, tag.text == "break" ? Jump::leave_loop : Jump::next_iteration};
    }
    for (const std::string_view known :
         {"include", "extends", "import", "from", "block", "autoescape"})
      if (tag.text == known)
        throw Failure{ErrorCode::unsupported, fmt::format("the tag '{}'", tag.text), line};
    throw Failure{ErrorCode::corrupt_data, fmt::format("unknown tag '{}'", tag.text), line};
  }

  /// A name, with or without an attribute, or targets in parentheses.
  Target parse_one_target(bool may_be_attribute) {
    const Nesting nesting(*this);
    Target target;
    if (cursor_.skip_symbol("(")) {
      target = parse_target(false);
      cursor_.expect_symbol(")");
      return target;
    }
    target.name = cursor_.expect(Kind::name).text;
    for (const std::string_view constant : {"true", "True", "false", "False", "none", "None"})
      if (target.name == constant)
        throw Failure{ErrorCode::corrupt_data, "cannot assign to " + target.name, cursor_.line()};
    if (may_be_attribute && cursor_.skip_symbol("."))
      target.attribute = cursor_.expect(Kind::name).text;
    return target;
  }

  Target parse_target(bool may_be_attribute) {
    Target first = parse_one_target(may_be_attribute);
    if (!cursor_.sees_symbol(",")) return first;
    Target target;
    target.unpacks = true;
    target.parts.push_back(std::move(first));
    while (cursor_.skip_symbol(",")) {
      const bool ends = cursor_.sees_name("in") || cursor_.sees_symbol(")") ||
                        cursor_.sees_symbol("=") || cursor_.sees(Kind::block_end);
      if (ends) break;
      target.parts.push_back(parse_one_target(may_be_attribute));
    }
    return target;
  }

  Set parse_set() {
    Set set{parse_target(true), nullptr, nullptr, {}};
    if (cursor_.skip_symbol("=")) {
      set.value = expressions_.parse_tuple(true);
      cursor_.expect(Kind::block_end);
    } else {
      if (cursor_.skip_symbol("|")) set.filter = expressions_.parse_block_filter();
      set.body = parse_body("endset");
    }
    return set;
  }

  CallBlock parse_call() {
    auto caller = std::make_shared<Macro>();
    caller->name = "caller";
    if (cursor_.skip_symbol("(")) caller->parameters = parse_parameters();
    CallBlock block;
    const int line = cursor_.line();
    block.call = expressions_.parse();
    if (!std::holds_alternative<Call>(block.call->form))
      throw Failure{ErrorCode::corrupt_data, "'call' needs a call of a macro", line};
    parse_macro_body(*caller, "endcall");
    block.caller = std::move(caller);
    return block;
  }

  FilterBlock parse_filter() {
    FilterBlock block;
    block.filter = expressions_.parse_block_filter();
    block.body = parse_body("endfilter");
    return block;
  }

  With parse_with() {
    With with;
    while (!cursor_.sees(Kind::block_end)) {
      if (!with.variables.empty()) cursor_.expect_symbol(",");
      Target target = parse_target(false);
      cursor_.expect_symbol("=");
      with.variables.emplace_back(std::move(target), expressions_.parse());
    }
    with.body = parse_body("endwith");
    return with;
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
    For loop;
    loop.target = parse_target(false);
    cursor_.expect_name("in");
    loop.iterable = expressions_.parse_tuple(false);
    if (cursor_.skip_name("if")) loop.condition = expressions_.parse();
    loop.is_recursive = cursor_.skip_name("recursive");
    cursor_.expect(Kind::block_end);
    loop.body = parse_until({"else", "endfor"});
    if (cursor_.skip_name("else")) {
      cursor_.expect(Kind::block_end);
      loop.otherwise = parse_until({"endfor"});
    }
    close_tag("endfor");
    return loop;
  }

  using Parameters = std::vector<std::pair<std::string, ExpressionPtr>>;

  /// Parses the parameters after the opening parenthesis.
  Parameters parse_parameters() {
    Parameters parameters;
    while (!cursor_.sees_symbol(")")) {
      if (!parameters.empty()) cursor_.expect_symbol(",");
      const Token name = cursor_.expect(Kind::name);
      ExpressionPtr fallback = cursor_.skip_symbol("=") ? expressions_.parse() : nullptr;
      if (name.text == "caller" && !fallback)
        throw Failure{ErrorCode::corrupt_data, "the parameter 'caller' needs a default", name.line};
      for (const auto& [known, other] : parameters) {
        if (known == name.text || (other && !fallback))
          throw Failure{ErrorCode::corrupt_data,
                        known == name.text ? "the parameter " + known + " stands there twice"
                                           : "a parameter without a default behind one with it",
                        name.line};
      }
      parameters.emplace_back(name.text, std::move(fallback));
    }
    cursor_.expect_symbol(")");
    return parameters;
  }

  void parse_macro_body(Macro& macro, std::string_view end) {
    using Names = ExpressionParser::MacroNames;
    const Names before = std::exchange(expressions_.macro_names(), {});
    macro.body = parse_body(end);
    Names& names = expressions_.macro_names();
    const auto is_mentioned = [&](bool mention, std::string_view name) {
      return mention && std::ranges::none_of(macro.parameters, [&](const auto& parameter) {
               return parameter.first == name;
             });
    };
    macro.takes_caller = is_mentioned(names.caller, "caller");
    macro.takes_varargs = is_mentioned(names.varargs, "varargs");
    macro.takes_kwargs = is_mentioned(names.kwargs, "kwargs");
    names = {names.caller || before.caller, names.varargs || before.varargs,
             names.kwargs || before.kwargs};
  }

  std::shared_ptr<const Macro> parse_macro() {
    auto macro = std::make_shared<Macro>();
    macro->name = cursor_.expect(Kind::name).text;
    cursor_.expect_symbol("(");
    macro->parameters = parse_parameters();
    parse_macro_body(*macro, "endmacro");
    return macro;
  }

  TokenCursor cursor_;
  ExpressionParser expressions_;
  int depth_ = 0;
};

}  // namespace

Block parse(std::vector<Token> tokens) { return Parser(std::move(tokens)).run(); }

}  // namespace troupe::jinja
