#include "launcher/cli/help_formatter.hpp"

#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "runtime/base/terminal_text.hpp"

namespace troupe {
namespace {

constexpr std::size_t columns = 80;

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    const bool has_commands = !app->get_subcommands({}).empty();
    return fmt::format("\nUsage: {} {}\n\n", name,
                       has_commands ? "COMMAND [options]" : "[options]");
  }

  std::string make_description(const CLI::App* app) const override {
    std::string text;
    for (const std::string& line : wrapped(app->get_description(), columns)) text += line + "\n";
    return text;
  }

  std::string make_subcommand(const CLI::App* app) const override {
    return two_columns(app->get_name(), app->get_description());
  }

  std::string make_option(const CLI::Option* option, bool) const override {
    std::string name = option->get_name(false, true);
    name = name.substr(0, name.find('{'));  // a flag's value when it is given without one
    if (const auto comma = name.find(','); comma != name.npos) name.insert(comma + 1, " ");
    std::string value = option->get_option_text();
    if (value.empty() && option->get_type_size() != 0) value = " " + option->get_type_name();
    std::string text = option->get_description();
    if (const auto& usual = option->get_default_str(); !usual.empty()) {
      text += fmt::format(" (default {})", usual);
    }
    return two_columns(name + value, text);
  }

  std::string make_group(std::string name, bool,
                         std::vector<const CLI::Option*> options) const override {
    std::string text = name + ":\n";
    for (const CLI::Option* option : options) text += make_option(option, false);
    return text;
  }
};

}  // namespace

void format_help(CLI::App& app) { app.formatter(std::make_shared<HelpFormatter>()); }

}  // namespace troupe
