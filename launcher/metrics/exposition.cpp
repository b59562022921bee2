#include "launcher/metrics/exposition.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "models/text/unicode/utf8.hpp"

namespace troupe {
namespace {

/// Label values may hold any UTF-8, but a single invalid byte makes Prometheus refuse all of the
/// text. Three characters are escaped with a backslash.
std::string escaped(std::string_view bytes) {
  std::string text, result;
  text::append_lossy(bytes, true, text);
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

void Histogram::observe(double value) {
  const auto place = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<std::size_t>(place - bounds_.begin())];
  sum_ += value;
}

std::uint64_t Histogram::up_to(std::size_t i) const {
  std::uint64_t count = 0;
  for (std::size_t bucket = 0; bucket <= i && bucket < counts_.size(); ++bucket) {
    count += counts_[bucket];
  }
  return count;
}

void Exposition::head(std::string_view name, std::string_view help, std::string_view type) {
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void Exposition::sample(std::string_view name, std::string_view suffix, const MetricLabels& more,
                        double value) {
  text_ += fmt::format("{}{}", name, suffix);
  char before = '{';
  const MetricLabels* const both[] = {&labels_, &more};
  for (const MetricLabels* labels : both) {
    for (const auto& [label, content] : *labels) {
      text_ += fmt::format("{}{}=\"{}\"", before, label, escaped(content));
      before = ',';
    }
  }
  text_ += fmt::format("{}{}\n", before == ',' ? "} " : " ", number(value));
}

void Exposition::gauge(std::string_view name, std::string_view help, double value) {
  head(name, help, "gauge");
  sample(name, "", {}, value);
}

void Exposition::gauges(std::string_view name, std::string_view help, std::string_view label,
                        std::span<const double> values) {
  head(name, help, "gauge");
  for (std::size_t i = 0; i < values.size(); ++i) {
    sample(name, "", {{label, fmt::format("{}", i)}}, values[i]);
  }
}

void Exposition::counter(std::string_view name, std::string_view help, double value) {
  head(name, help, "counter");
  sample(name, "", {}, value);
}

void Exposition::counters(std::string_view name, std::string_view help, std::string_view label,
                          std::span<const std::pair<std::string, std::uint64_t>> values) {
  head(name, help, "counter");
  for (const auto& [content, value] : values) {
    sample(name, "", {{label, content}}, static_cast<double>(value));
  }
}

void Exposition::histogram(std::string_view name, std::string_view help,
                           const Histogram& histogram) {
  head(name, help, "histogram");
  const auto bounds = histogram.bounds();
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    sample(name, "_bucket", {{"le", number(bounds[i])}}, static_cast<double>(histogram.up_to(i)));
  }
  const auto all = static_cast<double>(histogram.up_to(bounds.size()));
  sample(name, "_bucket", {{"le", "+Inf"}}, all);
  sample(name, "_sum", {}, histogram.sum());
  sample(name, "_count", {}, all);
}

}  // namespace troupe
