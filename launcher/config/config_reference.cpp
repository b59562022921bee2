#include "launcher/config/config_reference.hpp"

#include <sstream>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "launcher/config/config_schema.hpp"

namespace troupe {
namespace {

constexpr std::size_t columns = 100;

constexpr std::string_view introduction =
    R"(# Configuration

`launcher --config FILE` reads one YAML file. `launcher check --config FILE` prints it with every
default filled in, the table of ranks, and what is wrong, and starts no job. `launcher init` writes
a file to begin with.

Rules:

- A value from the command line goes before the file's: `--set engine.block_size=32` (as often as
  wanted), `--input FILE` for `job.input`, `--output FILE` for `job.output`.
- Unknown keys are refused; the message names the nearest known one. A key or value that is known
  but does not run yet is refused with "not in this version". A key given twice is refused.
- All mistakes are told at once (at most 10), each as `file:line: what is wrong, what is allowed`;
  the exit code is 2 and nothing has been started.
- Relative paths count from the folder that the launcher is started in.
- The file is one YAML document of at most 1 MiB. A list with one entry may be written without
  brackets. No environment variable changes anything.

This page is what `launcher reference` prints: it is made from the table that the YAML is validated
by, in `launcher/config`, and a test compares the two.
)";

std::string_view section_of(std::string_view key) { return key.substr(0, key.find('.')); }

std::string quoted_list(const std::vector<std::string_view>& words) {
  std::string result;
  for (const auto word : words) result += fmt::format("{}`{}`", result.empty() ? "" : ", ", word);
  return result;
}

/// True if Markdown takes the word for a list or a heading at the beginning of a line.
bool begins_something(std::string_view word) {
  return word == "-" || word == "+" || word == "*" || word.starts_with('#') || word == ">";
}

std::string wrapped(const std::string& text) {
  std::istringstream words(text);
  std::string result, line;
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > columns && !begins_something(word)) {
      result += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return result + line + "\n";
}

/// "Type: an integer, or `auto`; from 1 to 8; default: `auto`."
std::string facts(const KeySpec& spec) {
  const bool numeric = spec.type == ValueType::integer || spec.type == ValueType::number;
  std::string text = fmt::format("Type: {}", to_string(spec.type));
  if (spec.allows_auto) text += fmt::format(", or `{}`", spec.auto_word);
  if (!spec.choices.empty()) {
    text += fmt::format("; one of {}", quoted_list(spec.choices));
  } else if (numeric) {
    text += fmt::format("; from {:.16g} to {:.16g}", spec.minimum, spec.maximum);
  }
  text += spec.default_value.empty() ? "; no default"
                                     : fmt::format("; default: `{}`", spec.default_value);
  if (!spec.this_version.empty()) {
    text += fmt::format("; this version runs: {}", quoted_list(spec.this_version));
  }
  return text + ".";
}

}  // namespace

std::string configuration_reference() {
  std::string page(introduction);
  std::string_view section;
  for (const KeySpec& spec : config_schema()) {
    if (section_of(spec.key) != section) {
      section = section_of(spec.key);
      page += fmt::format("\n## {}\n", section == spec.key ? "Top level" : section);
    }
    page += fmt::format("\n### `{}`\n\n", spec.key) + wrapped(facts(spec)) +
            wrapped(std::string(spec.reference));
  }
  return page;
}

}  // namespace troupe
