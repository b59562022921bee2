#include "models/layers/weights/kernel_table.hpp"

#include <fmt/format.h>

namespace troupe {

std::string ranges_of(const std::set<std::int64_t>& numbers) {
  std::string text;
  for (auto at = numbers.lower_bound(0); at != numbers.end();) {
    const std::int64_t first = *at;
    std::int64_t last = first;
    for (++at; at != numbers.end() && *at == last + 1; ++at) last = *at;
    if (!text.empty()) text += ", ";
    text += first == last ? fmt::to_string(first) : fmt::format("{}-{}", first, last);
  }
  return text;
}

std::vector<std::string> KernelTable::lines() const {
  std::vector<std::string> lines;
  std::string_view known;
  for (const auto& [key, layers] : layers_) {
    const auto& [kernel, matrix] = key;
    const bool is_next = !lines.empty() && kernel == known;
    if (!is_next) lines.push_back(kernel + ":");
    known = kernel;
    const std::string where = ranges_of(layers);
    lines.back() +=
        fmt::format("{} {}{}{}", is_next ? "," : "", matrix, where.empty() ? "" : " ", where);
  }
  return lines;
}

}  // namespace troupe
