// Templates built like those of well-known model families, each for the features it leans on.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/text/jinja/template.hpp"

namespace troupe::jinja {
namespace {

using nlohmann::ordered_json;

std::string render(const std::string& source, const ordered_json& values) {
  const auto parsed = Template::parse(source, "t");
  if (!parsed.ok()) return "PARSE " + parsed.error().message;
  const auto text = parsed->render(values, 0);
  return text.ok() ? *text : "ERROR " + text.error().message;
}

const ordered_json chat = ordered_json::parse(R"({
  "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true, "enable_thinking": false,
  "messages": [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Weather? "},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nLet me see.",
     "tool_calls": [{"function": {"name": "weather", "arguments": {"town": "Köln", "days": 2}}}]},
    {"role": "tool", "content": "rain"},
    {"role": "tool", "content": "wind"}],
  "tools": [{"type": "function", "function": {"name": "weather"}}]})");

TEST(TemplateStyle, of_qwen_groups_tool_answers_and_drops_old_thoughts) {
  const std::string source = R"({%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- '<tools>' }}
    {%- for tool in tools %}
        {{- '\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\n</tools><|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == 'user' and message.content is string %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>user\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content.split('</think>')[-1].lstrip('\n') %}
        {{- '<|im_start|>assistant\n' ~ content ~ ns.last }}
        {%- for call in message.tool_calls %}
            {{- '\n{"name": "' ~ call.function.name ~ '", "arguments": ' }}
            {%- if call.function.arguments is string %}
                {{- call.function.arguments }}
            {%- else %}
                {{- call.function.arguments | tojson }}
            {%- endif %}
            {{- '}' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or (messages[loop.index0 - 1].role != 'tool') %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n[' + message.content + ']' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != 'tool') %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
)";
  EXPECT_EQ(render(source, chat),
            "<|im_start|>system\nBe brief.\n\n<tools>\n"
            R"({"type": "function", "function": {"name": "weather"}})"
            "\n</tools><|im_end|>\n<|im_start|>user\n Weather? <|im_end|>\n"
            "<|im_start|>assistant\nLet me see.1\n"
            R"({"name": "weather", "arguments": {"town": "Köln", "days": 2}})"
            "<|im_end|>\n<|im_start|>user\n[rain]\n[wind]<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST(TemplateStyle, of_llama3_puts_the_first_token_into_the_first_message) {
  const std::string source =
      "{% for message in messages if message.role != 'tool' %}{% set content = '[' + "
      "message['role'] "
      "+ ']\n\n' + message['content'] | trim + '<|eot|>' %}{% if loop.index0 == 0 %}{% set content "
      "= bos_token + content %}{% endif %}{{ content }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '[assistant]\n\n' }}{% endif %}";
  EXPECT_EQ(render(source, chat),
            "<s>[system]\n\nBe brief.<|eot|>[user]\n\nWeather?<|eot|>"
            "[assistant]\n\n<think>\nhm\n</think>\n\nLet me see.<|eot|>[assistant]\n\n");
}

TEST(TemplateStyle, of_mistral_insists_on_turns_that_alternate) {
  const std::string source = R"({%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("roles must alternate") }}
    {%- endif %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- else %}
        {{- " " + message["content"] + eos_token }}
    {%- endif %}
{%- endfor %})";
  ordered_json turns = chat;
  turns["messages"].erase(3);
  turns["messages"][3] = {{"role", "user"}, {"content", "Thanks"}};
  turns["messages"][2]["content"] = "Rain.";
  EXPECT_EQ(render(source, turns),
            "<s>[INST]  Weather? [/INST] Rain.</s>[INST] Be brief.\n\nThanks[/INST]");
  turns["messages"].erase(1);
  EXPECT_EQ(render(source, turns), "ERROR t:10: roles must alternate");
}

}  // namespace
}  // namespace troupe::jinja
