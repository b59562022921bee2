#include "models/text/jinja/template.hpp"
#include "models/text/unicode/utf8.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"
#include "tests/unit/fuzz/targets/mutator.hpp"
#include "tests/unit/fuzz/targets/targets.hpp"
#include "tests/unit/fuzz/targets/template_grammar.hpp"

namespace troupe::fuzz {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view template_words[] = {"{% for m in messages %}",
                                               "{% for a, b in messages[0].items() %}",
                                               "{% endfor %}",
                                               "{% if x is defined %}",
                                               "{% elif true %}",
                                               "{% else %}",
                                               "{% endif %}",
                                               "{% set x = 'a' * 100000 %}",
                                               "{% set ns = namespace(x=1) %}",
                                               "{% set ns.x = ns %}",
                                               "{% macro f(a, b=1) %}",
                                               "{{ f(f(1)) }}",
                                               "{% endmacro %}",
                                               "{{ messages | tojson(indent=4) }}",
                                               "{{ range(1000000000) }}",
                                               "{% raw %}",
                                               "{% endraw %}",
                                               "{{ loop.index0 }}",
                                               "{{",
                                               "}}",
                                               "{%-",
                                               "-%}",
                                               "{#",
                                               "#}",
                                               "((((((((",
                                               "[[[[[[[[",
                                               "not not not not ",
                                               "- - - - ",
                                               " ** ",
                                               " ~ ",
                                               " // 0",
                                               " % 0",
                                               "[::-1]",
                                               "[::0]",
                                               "[-9223372036854775808:]",
                                               "|join(',')",
                                               "|replace('', 'xx')",
                                               ".split('')",
                                               "|sort(attribute='role')",
                                               "|map('upper')|list",
                                               "|selectattr('role', 'eq', 'user')",
                                               "{{ strftime_now('%Y%n%9999d') }}",
                                               "{% break %}",
                                               "{% continue %}",
                                               "\"\\u12",
                                               "{{ raise_exception(1) }}",
                                               "{% generation %}",
                                               "|unique|first",
                                               "{{ cycler }}",
                                               "|batch(0)",
                                               "|center(999999999)",
                                               "|indent(99999999)",
                                               "|round(400)",
                                               "|int(base=99)",
                                               "9223372036854775807 + 1",
                                               "-9223372036854775808 // -1",
                                               "{% set x = x ~ x %}"};

const ordered_json chat = ordered_json::parse(R"({
  "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true, "tools": [{"a": 1}],
  "x": "some text", "messages": [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Weather? "},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nRain.",
     "tool_calls": [{"function": {"name": "f", "arguments": {"town": "K\u00f6ln", "days": 2}}}]},
    {"role": "tool", "content": null}]})");

std::vector<std::string> sources() {
  const std::filesystem::path fable =
      std::filesystem::path(TROUPE_SOURCE_DIR) / "tests/data/text/fable/chat_template.jinja";
  return {
      golden::file_bytes(fable),
      R"({%- set ns = namespace(last=messages|length - 1) %}{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == 'user' and message.content is string %}{%- set ns.last = index %}{%- endif %}
{%- endfor %}{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
{%- for message in messages %}{%- if message.content %}{{ message.content.split('</think>')[-1].lstrip('\n') }}{%- endif %}
{%- for call in message.tool_calls %}{{ call.function.arguments | tojson }}{%- endfor %}{%- endfor %})",
      R"({% macro show(items, sep=', ') %}{% for item in items if item is not none %}{{ item | upper }}{{ sep if not loop.last }}{% endfor %}{% endmacro %}
{{ show(messages | map(attribute='role') | list) }}{{ messages[0]['content'][1:-1:2] }}{{ "%s" ~ 3 // 2 ** 1 }}
{% set words = x.split(' ') %}{{ words | join('-') | replace('e', 'E') | trim }}{{ {'a': 1}.get('b', [1, 2, (3,)]) }})",
  };
}

/// Renders a template made by the grammar; most fail sooner or later, which must have a reason.
bool renders_generated(std::uint64_t seed) {
  Mutator mutator(seed);
  const std::string source =
      "{% set ns = namespace(a=1) %}{% set d = messages[2] %}" + TemplateGrammar(mutator).block(4);
  SCOPED_TRACE(source);
  const auto parsed = jinja::Template::parse(source, "t");
  const auto text = parsed.ok() ? parsed->render(chat, 0) : Result<std::string>(parsed.error());
  if (text.ok()) {
    EXPECT_TRUE(text::is_valid_utf8(*text));
  } else {
    EXPECT_TRUE(text.error().message.starts_with("t:")) << text.error().message;
  }
  return text.ok();
}

}  // namespace

void changed_templates(Effort effort) {
  const std::vector<std::string> originals = sources();
  std::size_t rendered = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    std::string source = originals[mutator.below(originals.size())];
    for (std::size_t i = 0, changes = 1 + mutator.below(3); i < changes; ++i) {
      source = mutator.bytes(source, template_words);
    }
    const auto parsed = jinja::Template::parse(source, "t");
    if (!parsed.ok()) return;
    ordered_json variables = chat;
    if (mutator.one_in(3)) mutator.json(variables["messages"]);
    const auto text = parsed->render(variables, 0);
    rendered += text.ok() ? 1 : 0;
    if (!text.ok()) {
      EXPECT_TRUE(text.error().message.starts_with("t:")) << text.error().message;
    }
  });
  EXPECT_GT(rendered, 0U);
}

void generated_templates(Effort effort) {
  std::size_t rendered = 0;
  for_seeds(effort, [&](std::uint64_t seed) { rendered += renders_generated(seed) ? 1 : 0; });
  EXPECT_GT(rendered, 0U);
}

}  // namespace troupe::fuzz
