#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/text/jinja/template.hpp"

namespace troupe::jinja {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

ordered_json variables() {
  return ordered_json::parse(R"({
    "messages": [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "Hi é"},
                 {"role": "assistant", "content": null}],
    "n": null, "t": true, "i": 7, "f": 2.5, "s": "Hello World é", "l": [3, 1, 2, 1],
    "d": {"b": 1, "a": "x", "items": 5}})");
}

std::string render(const std::string& source, const ordered_json& values = variables()) {
  const auto parsed = Template::parse(source, "t");
  if (!parsed.ok()) return "PARSE " + parsed.error().message;
  const auto text = parsed->render(values, 0);
  return text.ok() ? *text : "ERROR " + text.error().message;
}

struct Case {
  const char* source;
  const char* expected;
};

void expect_all(std::initializer_list<Case> cases) {
  for (const auto& [source, expected] : cases) EXPECT_EQ(render(source), expected) << source;
}

// Expected results are those of Jinja 3.1 with transformers' settings.

TEST(Jinja, computes_as_python_does) {
  expect_all({{"{{ 1 + 2 * 3 ** 2 }}", "19"},
              {"{{ -7 // 2 }} {{ -7 % 3 }}", "-4 2"},
              {"{{ 6 / 2 }} {{ 7.5 // 2 }}", "3.0 3.0"},
              {"{{ 2 ** -1 }}", "0.5"},
              {"{{ 1e16 }} {{ 1e15 }}", "1e+16 1000000000000000.0"},
              {"{{ 'a' ~ 1 ~ 2.0 ~ none ~ true }}", "a12.0NoneTrue"},
              {"{{ 'ab' * 2 }}", "abab"},
              {"{{ [1] + [2] }}", "[1, 2]"},
              {"{{ 1 == 1.0 }} {{ true == 1 }}", "True True"},
              {"{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }}", "True False"},
              {"{{ n or 'y' }} {{ t and 'x' }}", "y x"},
              {"{{ 'a' if not t else 'b' if i == 7 else 'c' }}", "b"},
              {"{{ 'z' not in 'abc' }} {{ 'a' in d }}", "True True"},
              {"{{ -1|abs }} {{ 'a' ~ 'b'|upper }}", "1 aB"}});
}

TEST(Jinja, prints_values_as_python_does) {
  expect_all({{"{{ [1, 'a', none, true, 1.5, \"it's\"] }}", "[1, 'a', None, True, 1.5, \"it's\"]"},
              {"{{ {'a': 1, 'b': [1, 2]} }}", "{'a': 1, 'b': [1, 2]}"},
              {"{{ (1,) }} {{ (1, 2) }} {{ (1) }}", "(1,) (1, 2) 1"},
              {"[{{ missing }}] {{ n }}", "[] None"}});
}

TEST(Jinja, slices_and_indexes) {
  expect_all({{"{{ l[::-1] }} {{ l[1:3] }} {{ l[-1] }}", "[1, 2, 1, 3] [1, 2] 1"},
              {"{{ s[::-1] }} {{ s[-1] }} {{ s[1:4] }}", "é dlroW olleH é ell"},
              {"{{ l[5:1:-1] }} {{ l[10] is defined }}", "[1, 2] False"},
              {"{{ d.b }} {{ d['items'] }} {{ d.get('zz', 4) }}", "1 5 4"},
              {"{{ messages[1:][0].role }}", "user"}});
}

TEST(Jinja, applies_filters) {
  expect_all(
      {{"{{ s|length }} {{ s|upper }} {{ ' a '|trim }}", "13 HELLO WORLD É a"},
       {"{{ messages|map(attribute='role')|join(',') }}", "system,user,assistant"},
       {"{{ messages|selectattr('role', 'equalto', 'user')|list|length }}", "1"},
       {"{{ messages|rejectattr('content')|map(attribute='role')|list }}", "['assistant']"},
       {"{{ [1, 2, 3]|select('odd')|list }} {{ [0, 1]|reject|list }}", "[1, 3] [0]"},
       {"{{ l|sort }} {{ l|unique|list }} {{ l|first }} {{ l|last }}",
        "[1, 1, 2, 3] [3, 1, 2] 3 1"},
       {"{{ missing|default('x') }} {{ n|default('x') }} {{ n|default('x', true) }}", "x None x"},
       {"{{ '5.7'|int }} {{ 'x'|int(3) }} {{ 'a\nb'|indent(2) }}", "5 3 a\n  b"},
       {"{{ d|items|list }}", "[('b', 1), ('a', 'x'), ('items', 5)]"},
       {"{{ \"they're\"|title }} {{ \"they're\".title() }}", "They're They'Re"}});
}

TEST(Jinja, writes_json_as_transformers_does) {
  expect_all({{"{{ messages[1]|tojson }}", R"({"role": "user", "content": "Hi é"})"},
              {"{{ [1.0, none, '\"<\n'] | tojson }}", R"([1.0, null, "\"<\n"])"},
              {"{{ {'z': 1, 'a': []}|tojson(indent=2) }}", "{\n  \"z\": 1,\n  \"a\": []\n}"}});
}

TEST(Jinja, calls_methods) {
  expect_all(
      {{"{{ ' a  b '.split() }} {{ 'a,b,,c'.split(',') }}", "['a', 'b'] ['a', 'b', '', 'c']"},
       {"{{ 'x</t>y'.split('</t>')[-1] }} {{ 'a b c'.rsplit(' ', 1) }}", "y ['a b', 'c']"},
       {"{{ 'xxaxx'.strip('x') }} {{ 'xa'.lstrip('x') }} {{ 'ax'.rstrip('x') }}", "a a a"},
       {"{{ s.startswith('He') }} {{ s.endswith(('x', 'é')) }}", "True True"},
       {"{{ s.replace('o', '0', 1) }} {{ s.find('W') }}", "Hell0 World é 6"}});
}

TEST(Jinja, tests_values) {
  expect_all({{"{{ missing is defined }} {{ n is none }} {{ n.x is defined }}", "False True False"},
              {"{{ t is boolean }} {{ t is integer }} {{ t is number }}", "True False True"},
              {"{{ s is string }} {{ d is mapping }} {{ l is iterable }} {{ i is odd }}",
               "True True True True"},
              {"{{ i is divisibleby 7 }} {{ i is not gt 3 }}", "True False"}});
}

TEST(Jinja, loops) {
  expect_all(
      {{"{% for x in l if x != 1 %}{{ loop.index0 }}{{ x }}{{ loop.last }} {% else %}-{% endfor %}",
        "03False 12True "},
       {"{% for x in [] %}a{% else %}none{% endfor %}", "none"},
       {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "b=1;a=x;items=5;"},
       {"{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
        "<3>1 3<1>2 1<2>1 2<1> "},
       {"{% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}"
        "{% endif %}{{ x }}{% endfor %}",
        "013"}});
}

TEST(Jinja, keeps_assignments_in_their_scope) {
  expect_all(
      {{"{% set x = 1 %}{% for y in l %}{% set x = x + y %}{{ x }}{% endfor %}{{ x }}", "42321"},
       {"{% set ns = namespace(c=0) %}{% for y in l %}{% set ns.c = ns.c + y %}{% endfor %}"
        "{{ ns.c }}",
        "7"},
       {"{% if t %}{% set q = 1 %}{% endif %}{{ q }}", "1"},
       {"{% set a, b = 1, 2 %}{{ b }}{{ a }}", "21"},
       {"{% set x %}\nblock {{ i }}\n{% endset %}[{{ x }}]", "[block 7\n]"},
       {"{% macro f(a, b='z') %}[{{ a }}{{ b }}{{ late }}]{% endmacro %}{% set late = 5 %}"
        "{{ f(1) }}{{ f(b=2) }}",
        "[1z5][25]"}});
}

TEST(Jinja, controls_whitespace) {
  expect_all({{"a\n{%- if t %} b {% endif -%}\n c", "a b c"},
              {"  {% if t %}\n    x\n  {% endif %}\ny", "    x\ny"},
              {"  {{ i }}\n{{ i }}\n", "  7\n7"},
              {"a {%+ if t %} b {% endif +%}\nc", "a  b \nc"},
              {"a\n{#- c -#}\nb\n  {# d #}\ne", "ab\ne"},
              {"{% raw %}{{ x }} {% if %}{% endraw %}\nx", "{{ x }} {% if %}x"},
              {"{{ '}}' }}{{ {'a': {'b': 1}} }}", "}}{'a': {'b': 1}}"}});
}

TEST(Jinja, names_the_line_of_what_is_wrong) {
  expect_all(
      {{"a\n{{ missing.x }}", "ERROR t:2: 'missing' is undefined"},
       {"\n\n{{ 'a' + n }}", "ERROR t:3: cannot compute str + NoneType"},
       {"{% if t %}\n{{ raise_exception('no tools') }}{% endif %}", "ERROR t:2: no tools"},
       {"{{ l.append(1) }}", "ERROR t:1: append() would change a list, which a template may not"},
       {"{{ i|nonsense }}", "ERROR t:1: the filter 'nonsense' is not supported"},
       {"a\n{% include 'x' %}", "PARSE t:2: the tag 'include' is not supported"},
       {"{% for x in l %}\n", "PARSE t:1: expected endfor, found the end of the template"},
       {"{{ 'a }}", "PARSE t:1: a string has no end"}});
}

TEST(Jinja, refuses_a_template_that_is_not_utf8) {
  EXPECT_EQ(render("{{ s }}\n{{ 'a\xE2' | list }}"),
            "PARSE t:2: byte 13 of the template is not UTF-8");
  EXPECT_EQ(render("\xF0\x9F\x98\x80{{ ' \xC3'.split() }}"),
            "PARSE t:1: byte 9 of the template is not UTF-8");
}

TEST(Jinja, refuses_to_run_away) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested"},
      {"{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
       "too many steps"},
      {"{{ 'a' * 99999999999 }}", "MiB"},
      {"{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(99) %}"
       "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
       "too many steps"},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}"
       "{% endfor %}",
       "items"},
      {"{% set ns = namespace(x=[], y=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
       "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
       "too many steps"},
      {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested"},
      {"{% set ns = namespace() %}{% set ns.x = [] %}{% for i in range(999) %}"
       "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
       "nested"},
      {"{{ range(10000000) }}", "range()"},
  };
  for (const auto& [source, reason] : cases)
    EXPECT_THAT(render(source), HasSubstr(reason)) << source;
  EXPECT_THAT(render("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"),
              HasSubstr("nested"));
  EXPECT_THAT(render("{{ " + std::string(5000, '[')), HasSubstr("PARSE"));
}

TEST(Jinja, counts_steps_by_the_work_that_they_are) {
  const std::string_view works[] = {"namespace([['ab', 1]] * 1000)",
                                    "dict(['ab'] * 1000)",
                                    "('\\t' * 3000) is upper",
                                    "('Ab ' * 1000) | title",
                                    "('Ab ' * 1000).islower()",
                                    "('1' * 3000 ~ 'x') | int",
                                    "(['ab' * 100] * 40) | map('lower') | list",
                                    "([messages] * 40) | select('lower') | list"};
  for (const std::string_view work : works) {
    EXPECT_EQ(render(fmt::format("{{% set x = {} %}}", work)), "") << work;
    const std::string repeated =
        fmt::format("{{% for i in range(20000) %}}{{% set x = {} %}}{{% endfor %}}", work);
    EXPECT_THAT(render(repeated), HasSubstr("too many steps")) << work;
  }
}

TEST(Jinja, renders_a_conversation_of_megabytes) {
  ordered_json values = variables();
  std::string text = "<think>hm</think>";
  while (text.size() < 4'000'000) text += "A sentence, é. ";
  values["messages"][0]["content"] = text;
  const std::string shown = render(
      "{% for m in messages %}{% if m.content is string and '<think>' in m.content %}"
      "{{ m.content.split('</think>')[-1].lstrip('\n') | trim }}"
      "{{ m.content.startswith('x') or m.content.replace('x', 'y') | tojson }}"
      "{% endif %}{% endfor %}",
      values);
  EXPECT_GT(shown.size(), 7'999'900U) << shown.substr(0, 100);
}

TEST(Jinja, takes_long_chains_or_refuses_them_whatever_they_are_made_of) {
  const auto repeated = [](std::string_view part, int times = 30'000) {
    std::string out;
    for (int i = 0; i < times; ++i) out += part;
    return out;
  };
  EXPECT_THAT(render("{{ 1" + repeated("+1", 300'000) + " }}"), HasSubstr("nested"));
  EXPECT_THAT(render("{{ 'a'" + repeated("~'b'") + " }}"), testing::StartsWith("abbb"));
  for (const char* link : {"+1", " and 1", ".b", "[0]", "()", "|f", " if 1 else 1"})
    EXPECT_THAT(render("{{ a" + repeated(link) + " }}"), HasSubstr("nested")) << link;
  EXPECT_THAT(render("{% filter f" + repeated("|f") + " %}{% endfilter %}"), HasSubstr("nested"));
  EXPECT_THAT(render(repeated("{% if 1 %}")), HasSubstr("nested"));
}

TEST(Jinja, frees_values_that_hold_each_other_through_many_hands) {
  for (const char* held : {"[ns.x]", "{'a': ns.x}", "{'a': ns.x}.get"})
    EXPECT_THAT(render(fmt::format("{{% set ns = namespace(x=[]) %}}{{% for i in range(9999) %}}"
                                   "{{% set ns.x = {} %}}{{% endfor %}}",
                                   held)),
                HasSubstr("nested"))
        << held;
  expect_all(
      {{"{% set ns = namespace(x=1) %}{% for i in range(9999) %}"
        "{% set ns.x = namespace(x=ns.x) %}{% endfor %}done",
        "done"}});
}

TEST(Jinja, refuses_integers_and_takes_numbers_of_any_size) {
  expect_all({{"{{ l.99999999999999999999 }}",
               "PARSE t:1: the integer 99999999999999999999 is not supported"},
              {"{{ 99999999999999999999 }}",
               "PARSE t:1: the integer 99999999999999999999 is not supported"},
              {"{{ l.1 }}", "1"},
              {"{{ 1e999 > 1e308 }}", "True"},
              {"{{ 1e-999 == 0 }}", "True"},
              {"{{ '99' | int }}", "99"}});
}

TEST(Jinja, frees_namespaces_and_macros_that_hold_each_other) {
  expect_all(
      {{"{% set ns = namespace() %}{% set ns.self = ns %}{% macro f() %}x{% endmacro %}"
        "{% set ns.f = f %}{{ ns.f() }}{{ ns.self.f() }}",
        "xx"}});
}

}  // namespace
}  // namespace troupe::jinja
