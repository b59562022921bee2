#include "tests/unit/fuzz/targets/template_grammar.hpp"

#include <iterator>

#include <fmt/format.h>

namespace troupe::fuzz {
namespace {

using Words = std::string_view[];

constexpr Words names = {"messages", "tools", "x",      "y",      "ns",      "ns.a", "loop",
                         "f",        "g",     "caller", "kwargs", "varargs", "d",    "missing"};
constexpr Words literals = {"0",
                            "1",
                            "-1",
                            "2",
                            "7",
                            "1000",
                            "99999",
                            "0.5",
                            "1e99",
                            "none",
                            "true",
                            "'a'",
                            "'é ß'",
                            "'%s {}'",
                            "''",
                            "[]",
                            "{}",
                            "()",
                            "[1, 2]",
                            "'a\\nb'",
                            "(1, 'b')",
                            "{'a': [1, {'b': none}]}",
                            "9223372036854775807",
                            "'x' * 9999",
                            "range(300)",
                            "'<&>'",
                            "'%(a)5.3d'",
                            "'{0[a]!r:>{1}}'"};
constexpr Words operators = {"+",  "-", "*",  "/", "//", "%",  "**",     "~",  "==",
                             "!=", "<", "<=", ">", ">=", "in", "not in", "or", "and"};
constexpr Words filters = {
    "abs",      "attr",     "batch", "capitalize", "center",      "count",      "default",
    "dictsort", "e",        "first", "float",      "forceescape", "format",     "groupby",
    "indent",   "int",      "items", "join",       "last",        "length",     "list",
    "lower",    "map",      "max",   "min",        "reject",      "rejectattr", "replace",
    "reverse",  "round",    "safe",  "select",     "selectattr",  "slice",      "sort",
    "string",   "sum",      "title", "tojson",     "trim",        "truncate",   "unique",
    "upper",    "wordcount"};
constexpr Words tests = {"defined",  "undefined", "none",       "true",    "boolean",  "integer",
                         "float",    "number",    "string",     "mapping", "sequence", "iterable",
                         "callable", "even",      "odd",        "lower",   "upper",    "escaped",
                         "filter",   "test",      "eq",         "ne",      "lt",       "ge",
                         "in",       "sameas",    "divisibleby"};
constexpr Words attributes = {
    "a",          "role",     "content",    "items",     "keys",       "values",   "get",
    "index",      "count",    "copy",       "append",    "update",     "split",    "rsplit",
    "splitlines", "join",     "replace",    "format",    "format_map", "strip",    "center",
    "zfill",      "ljust",    "expandtabs", "partition", "startswith", "endswith", "find",
    "upper",      "lower",    "title",      "swapcase",  "isalpha",    "istitle",  "index0",
    "previtem",   "nextitem", "cycle",      "changed",   "depth",      "length",   "grouper"};
constexpr Words keywords = {"attribute", "default", "indent", "width",  "first",     "reverse",
                            "base",      "sep",     "count",  "method", "separators"};
constexpr Words functions = {"range", "dict", "namespace", "joiner", "f", "g", "loop", "caller"};
constexpr Words texts = {
    "text", " ", "\n", "  \n  ", "{# note #}", "é", "{% raw %}{{ x }}{% endraw %}"};

}  // namespace

std::string TemplateGrammar::arguments(int depth) {
  std::string out;
  bool is_named = false;
  const std::size_t first_keyword = mutator_.below(std::size(keywords));
  for (std::size_t i = 0, count = mutator_.below(4); i < count; ++i) {
    is_named = is_named || mutator_.one_in(3);
    if (i > 0) out += ", ";
    if (is_named) out += fmt::format("{}=", keywords[(first_keyword + i) % std::size(keywords)]);
    out += mutator_.one_in(3)
               ? fmt::format("'{}'", mutator_.one_in(2) ? word(filters) : word(tests))
               : expression(depth - 1);
  }
  if (mutator_.one_in(12)) out += (out.empty() ? "**" : ", **") + expression(depth - 1);
  return out;
}

std::string TemplateGrammar::operation(int depth) {
  const std::string operand = expression(depth - 1);
  switch (mutator_.below(9)) {
    case 0:
      return fmt::format("({} {} {})", operand, word(operators), expression(depth - 1));
    case 1:
      return fmt::format("({}|{})", operand, word(filters));
    case 2:
      return fmt::format("({}|{}({}))", operand, word(filters), arguments(depth));
    case 3:
      return fmt::format("({} is {} {})", operand, word(tests), expression(depth - 1));
    case 4:
      return fmt::format("{}.{}", operand, word(attributes));
    case 5:
      return fmt::format("{}.{}({})", operand, word(attributes), arguments(depth));
    case 6:
      return fmt::format("{}[{}:{}:{}]", operand, expression(depth - 1), expression(depth - 1),
                         mutator_.one_in(2) ? "" : word(literals));
    case 7:
      return fmt::format("({} if {} else {})", operand, expression(depth - 1),
                         expression(depth - 1));
    default:
      return fmt::format("{}[{}]", operand, expression(depth - 1));
  }
}

std::string TemplateGrammar::expression(int depth) {
  if (depth <= 0 || mutator_.one_in(4))
    return std::string(mutator_.one_in(2) ? word(names) : word(literals));
  switch (mutator_.below(8)) {
    case 0:
      return fmt::format("[{}, {}]", expression(depth - 1), expression(depth - 1));
    case 1:
      return fmt::format("{{'a': {}, {}: {}}}", expression(depth - 1), word(literals),
                         expression(depth - 1));
    case 2:
      return fmt::format("{}({})", word(functions), arguments(depth));
    case 3:
      return fmt::format("({}{})", mutator_.one_in(2) ? "not " : "-", expression(depth - 1));
    default:
      return operation(depth);
  }
}

std::string TemplateGrammar::loop(int depth) {
  return fmt::format("{{% for {} in {}{}{} %}}{}{}{{% endfor %}}",
                     mutator_.one_in(3) ? "x, y" : "x",
                     mutator_.one_in(8) ? "range(100000)" : expression(2),
                     mutator_.one_in(4) ? fmt::format(" if {}", expression(1)) : "",
                     mutator_.one_in(3) ? " recursive" : "", block(depth - 1),
                     mutator_.one_in(3) ? "{% else %}none" : "");
}

std::string TemplateGrammar::macro(int depth) {
  const std::string_view name = mutator_.one_in(2) ? "f" : "g";
  switch (mutator_.below(3)) {
    case 0:
      return fmt::format("{{% call{} {}({}) %}}{}{{% endcall %}}", mutator_.one_in(2) ? "(x)" : "",
                         name, arguments(2), block(depth - 1));
    case 1:
      return fmt::format("{{{{ {}({}) }}}}", name, arguments(2));
    default:
      return fmt::format("{{% macro {}(x, y={}) %}}{}{{% endmacro %}}", name, expression(1),
                         block(depth - 1));
  }
}

std::string TemplateGrammar::statement(int depth) {
  if (depth <= 0) return fmt::format("{{{{ {} }}}}", expression(2));
  switch (mutator_.below(12)) {
    case 0:
      return loop(depth);
    case 1:
      return macro(depth);
    case 2:
      return fmt::format("{{% if {} %}}{}{{% else %}}{}{{% endif %}}", expression(2),
                         block(depth - 1), block(depth - 1));
    case 3:
      return fmt::format("{{% set x = {} %}}", expression(3));
    case 4:
      return fmt::format("{{% set ns.a = {} %}}", expression(3));
    case 5:
      return fmt::format("{{% set y %}}{}{{% endset %}}", block(depth - 1));
    case 6:
      return fmt::format("{{% filter {}({}) %}}{}{{% endfilter %}}", word(filters), arguments(1),
                         block(depth - 1));
    case 7:
      return fmt::format("{{% with x = {}, y = x %}}{}{{% endwith %}}", expression(2),
                         block(depth - 1));
    case 8:
      return mutator_.one_in(2) ? "{% if x %}{% break %}{% endif %}" : "{% set ns.a = [ns.a, x] %}";
    case 9:
      return std::string(word(texts));
    default:
      return fmt::format("{{{{ {} }}}}", expression(3));
  }
}

std::string TemplateGrammar::block(int depth) {
  std::string out;
  for (std::size_t i = 0, count = 1 + mutator_.below(3); i < count; ++i) out += statement(depth);
  return out;
}

}  // namespace troupe::fuzz
