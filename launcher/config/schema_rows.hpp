#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "launcher/config/config_schema.hpp"

/// Helpers for the rows of the schema; config_schema.cpp joins the sections.
namespace troupe::schema {

std::vector<KeySpec> model_and_cluster_rows();
std::vector<KeySpec> parallel_rows();
std::vector<KeySpec> engine_rows();
std::vector<KeySpec> kv_cache_rows();
std::vector<KeySpec> precision_rows();
std::vector<KeySpec> job_rows();
std::vector<KeySpec> slo_rows();

/// Quotes the text as in YAML if it is not plain.
std::string quoted_if_needed(std::string_view text);

inline void assign(std::string& target, const ConfigValue& value) { target = value.text; }
inline void assign(std::int64_t& target, const ConfigValue& value) { target = value.integer; }
inline void assign(double& target, const ConfigValue& value) { target = value.number; }
inline void assign(bool& target, const ConfigValue& value) { target = value.boolean; }
inline void assign(std::vector<std::string>& target, const ConfigValue& value) {
  target = value.list;
}
template <class T>
void assign(std::optional<T>& target, const ConfigValue& value) {
  if (value.automatic) return target.reset();
  assign(target.emplace(), value);
}

inline std::string write(const std::string& value) { return quoted_if_needed(value); }
inline std::string write(std::int64_t value) { return fmt::format("{}", value); }
inline std::string write(double value) { return fmt::format("{}", value); }
inline std::string write(bool value) { return value ? "true" : "false"; }
inline std::string write(const std::vector<std::string>& values) {
  std::string result;
  for (const auto& value : values) {
    result += (result.empty() ? "" : ", ") + quoted_if_needed(value);
  }
  return "[" + result + "]";
}
template <class T>
std::string write(const std::optional<T>& value) {
  return value ? write(*value) : "auto";
}

/// Completes a row for the member of Config to which the member pointers lead.
template <auto... Path>
KeySpec row(KeySpec spec) {
  spec.set = [](Config& config, const ConfigValue& value) { assign((config.*....*Path), value); };
  spec.get = [](const Config& config) { return write((config.*....*Path)); };
  return spec;
}

using C = Config;  // for short member paths in rows
constexpr double largest_size = 1 << 20;

}  // namespace troupe::schema
