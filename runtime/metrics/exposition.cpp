#include "runtime/metrics/exposition.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "runtime/base/terminal_text.hpp"

namespace troupe {
namespace {

/// Label values may hold any UTF-8, but a single invalid byte makes Prometheus refuse all of the
/// text. Three characters are escaped with a backslash.
/// Those of a HELP line need no escape for quotes.
std::string escaped(std::string_view bytes, bool is_help = false) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t count = utf8_bytes(bytes, at);
    const char c = bytes[at];
    if (count == 0) {
      text += "\uFFFD";
    } else if (c == '\n') {
      text += "\\n";
    } else {
      if (c == '\\' || (c == '"' && !is_help)) text += '\\';
      text += bytes.substr(at, count);
    }
    at += std::max<std::size_t>(count, 1);
  }
  return text;
}

std::string_view name_of(MetricKind kind) {
  switch (kind) {
    case MetricKind::counter:
      return "counter";
    case MetricKind::gauge:
      return "gauge";
    case MetricKind::histogram:
      return "histogram";
  }
  return "untyped";
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

void Exposition::head(std::string_view name, std::string_view help, std::string_view type) {
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escaped(help, true), name, type);
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
    sample(name, "", {{std::string(label), fmt::format("{}", i)}}, values[i]);
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
    sample(name, "", {{std::string(label), content}}, static_cast<double>(value));
  }
}

void Exposition::buckets(std::string_view name, const MetricLabels& more,
                         std::span<const double> bounds, std::span<const double> counts,
                         double sum) {
  MetricLabels labels = more;
  labels.emplace_back("le", "");
  double up_to = 0;
  for (std::size_t i = 0; i <= bounds.size(); ++i) {
    labels.back().second = i < bounds.size() ? number(bounds[i]) : "+Inf";
    up_to += counts[i];
    sample(name, "_bucket", labels, up_to);
  }
  sample(name, "_sum", more, sum);
  sample(name, "_count", more, up_to);
}

void Exposition::histogram(std::string_view name, std::string_view help,
                           const HistogramBuckets& histogram) {
  head(name, help, "histogram");
  const auto bounds = histogram.bounds();
  std::vector<double> counts;
  for (std::size_t i = 0; i <= bounds.size(); ++i) {
    counts.push_back(static_cast<double>(histogram.in_bucket(i)));
  }
  buckets(name, {}, bounds, counts, histogram.sum());
}

void Exposition::family(const MetricFamily& family) {
  head(family.name, family.help, name_of(family.kind));
  for (const MetricSeries& series : family.series) {
    if (family.kind != MetricKind::histogram) {
      sample(family.name, "", series.labels, series.values.front());
      continue;
    }
    const std::span values(series.values);
    buckets(family.name, series.labels, family.bounds, values.first(values.size() - 1),
            values.back());
  }
}

}  // namespace troupe
