#include "models/ops/cuda/device_code.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <string>

namespace troupe {
namespace {

/// The number in "90a", and the letter after it.
struct Capability {
  int major = 0;
  int minor = 0;
  char letter = 0;
};

Capability capability_of(std::string_view text) {
  const std::string digits(text.substr(0, text.find_first_not_of("0123456789")));
  const int number = std::atoi(digits.c_str());
  return {number / 10, number % 10, text.size() > digits.size() ? text[digits.size()] : char{0}};
}

bool one_runs_on(std::string_view code, int major, int minor) {
  const bool is_machine_code = code.starts_with("sm_");
  if (!is_machine_code && !code.starts_with("compute_")) return false;
  const Capability made = capability_of(code.substr(code.find('_') + 1));
  if (made.letter == 'a') return major == made.major && minor == made.minor;
  if (is_machine_code || made.letter == 'f') return major == made.major && minor >= made.minor;
  return major > made.major || (major == made.major && minor >= made.minor);
}

bool is_part_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// True if `wanted` holds for one of the codes after "code=".
bool any_of_codes(std::string_view code, const std::function<bool(std::string_view)>& wanted) {
  const std::size_t codes = code.find("code=");
  if (codes == std::string_view::npos) return false;
  code.remove_prefix(codes + std::string_view("code=").size());
  while (!code.empty()) {
    std::size_t length = 0;
    while (length < code.size() && is_part_of_name(code[length])) ++length;
    if (wanted(code.substr(0, length))) return true;
    code.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return false;
}

}  // namespace

bool code_runs_on(std::string_view code, int major, int minor) {
  return any_of_codes(code, [=](std::string_view one) { return one_runs_on(one, major, minor); });
}

bool has_hopper_kernels(std::string_view code) {
  return any_of_codes(code,
                      [](std::string_view one) { return one == "sm_90a" || one == "compute_90a"; });
}

}  // namespace troupe
