#include "launcher/cli/number_checks.hpp"

#include <charconv>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "launcher/config/config_value.hpp"

namespace troupe {
namespace {

template <class Number>
CLI::Validator between(const char* kind, Number least, Number most) {
  const auto check = [=](std::string& text) -> std::string {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && value >= least && value <= most) return {};
    return fmt::format("expected {} from {} to {}, found {}", kind, least, most, shortened(text));
  };
  return {check, ""};
}

}  // namespace

CLI::Validator integer_between(std::int64_t least, std::int64_t most) {
  return between("a whole number", least, most);
}

CLI::Validator number_between(double least, double most) {
  return between("a number", least, most);
}

}  // namespace troupe
