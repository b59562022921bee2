#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace troupe::test {

/// What a bench prints behind a figure: "(aim: at most 10 s, met)".
inline std::string at_most(double figure, double aim, std::string_view unit) {
  return fmt::format("(aim: at most {:g}{}{}, {})", aim, unit.empty() ? "" : " ", unit,
                     figure <= aim ? "met" : "missed");
}

/// "(aim: at least 100000 /s, missed)".
inline std::string at_least(double figure, double aim, std::string_view unit) {
  return fmt::format("(aim: at least {:.0f}{}{}, {})", aim, unit.empty() ? "" : " ", unit,
                     figure >= aim ? "met" : "missed");
}

}  // namespace troupe::test
