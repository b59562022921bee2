#include "runtime/node/resources.hpp"

#include <map>

#include <fmt/ranges.h>

namespace troupe {

Result<void> Resources::check() const {
  bool is_negative = cpus < 0 || devices < 0 || memory_bytes < 0;
  for (const auto& [name, amount] : custom) is_negative = is_negative || amount < 0;
  if (!is_negative) return {};
  return fail(ErrorCode::invalid_argument, "resources cannot be negative: {}", describe());
}

bool Resources::is_nothing() const {
  for (const auto& [name, amount] : custom) {
    if (amount != 0) return false;
  }
  return cpus == 0 && devices == 0 && memory_bytes == 0;
}

bool Resources::covers(const Resources& asked) const {
  if (asked.cpus > cpus || asked.devices > devices || asked.memory_bytes > memory_bytes) {
    return false;
  }
  for (const auto& [name, amount] : asked.custom) {
    const auto found = custom.find(name);
    if (amount > (found == custom.end() ? 0 : found->second)) return false;
  }
  return true;
}

Resources& Resources::operator+=(const Resources& other) {
  cpus += other.cpus;
  devices += other.devices;
  memory_bytes += other.memory_bytes;
  for (const auto& [name, amount] : other.custom) custom[name] += amount;
  return *this;
}

Resources& Resources::operator-=(const Resources& covered) {
  cpus -= covered.cpus;
  devices -= covered.devices;
  memory_bytes -= covered.memory_bytes;
  for (const auto& [name, amount] : covered.custom) custom[name] -= amount;
  return *this;
}

std::string Resources::describe() const {
  std::vector<std::string> parts;
  const auto counted = [&](int amount, const char* what) {
    if (amount != 0) parts.push_back(fmt::format("{} {}{}", amount, what, amount == 1 ? "" : "s"));
  };
  counted(devices, "device");
  counted(cpus, "cpu");
  if (memory_bytes != 0) parts.push_back(fmt::format("{} bytes of memory", memory_bytes));
  const std::map<std::string, std::int64_t> in_order(custom.begin(), custom.end());
  for (const auto& [name, amount] : in_order) {
    if (amount != 0) parts.push_back(fmt::format("{} of '{}'", amount, name));
  }
  return parts.empty() ? "nothing" : fmt::format("{}", fmt::join(parts, ", "));
}

const char* name_of(PlacementStrategy strategy) {
  switch (strategy) {
    case PlacementStrategy::pack:
      return "pack";
    case PlacementStrategy::spread:
      return "spread";
    case PlacementStrategy::strict_pack:
      return "strict_pack";
    case PlacementStrategy::strict_spread:
      return "strict_spread";
  }
  return "unknown";
}

}  // namespace troupe
