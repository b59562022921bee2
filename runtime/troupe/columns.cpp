#include "runtime/troupe/columns.hpp"

#include <fmt/ranges.h>

namespace troupe {

std::string json_of(std::string_view text) { return json_string(text); }

std::string json_of(const Resources& resources) {
  JsonObject custom;
  for (const auto& [name, amount] : resources.custom) custom.add(name, amount);
  return JsonObject()
      .add("cpus", resources.cpus)
      .add("devices", resources.devices)
      .add("memory_bytes", resources.memory_bytes)
      .add_json("custom", custom.text())
      .text();
}

std::string json_of(std::span<const int> numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ","));
}

std::string cell_of(std::string_view text) { return text.empty() ? "-" : std::string(text); }

std::string cell_of(const Resources& resources) { return resources.describe(); }

std::string cell_of(std::span<const int> numbers) {
  return numbers.empty() ? "-" : fmt::format("{}", fmt::join(numbers, ","));
}

}  // namespace troupe
