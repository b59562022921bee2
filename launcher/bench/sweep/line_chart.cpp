#include "launcher/bench/sweep/line_chart.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "launcher/report/html_escaped.hpp"

namespace troupe {
namespace {

constexpr double width = 560, height = 300;
constexpr double left = 64, right = 16, top = 52, bottom = 44;
constexpr double log_from_ratio = 30;

/// Where values stand between the lower and the upper edge.
struct Scale {
  bool logarithmic = false;
  double least = 0;
  double most = 1;
  std::vector<double> ticks;

  double y(double value) const {
    const double share = logarithmic ? (std::log10(value) - std::log10(least)) /
                                           (std::log10(most) - std::log10(least))
                                     : (value - least) / (most - least);
    return height - bottom - std::clamp(share, 0.0, 1.0) * (height - top - bottom);
  }
};

Scale scale_of(const std::vector<LineChart::Curve>& curves) {
  double least = std::numeric_limits<double>::infinity();
  double most = 0;
  for (const auto& curve : curves) {
    for (const double value : curve.values) {
      if (!std::isfinite(value)) continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  Scale scale;
  if (most > 0 && least > 0 && most / least > log_from_ratio) {
    scale.logarithmic = true;
    scale.least = std::pow(10, std::floor(std::log10(least)));
    scale.most = std::pow(10, std::ceil(std::log10(most)));
    for (double tick = scale.least; tick <= scale.most * 1.001; tick *= 10) {
      scale.ticks.push_back(tick);
    }
    return scale;
  }
  scale.ticks = even_ticks(most > 0 ? most : 1);
  scale.most = scale.ticks.back();
  return scale;
}

std::string tick_name(double value) {
  if (value >= 1e6) return fmt::format("{:g}M", value * 1e-6);
  if (value >= 1e4) return fmt::format("{:g}k", value * 1e-3);
  return fmt::format("{:g}", value);
}

double x_of(std::size_t place, std::size_t places) {
  const double room = width - left - right;
  return places < 2
             ? left + room / 2
             : left + 16 +
                   (room - 32) * static_cast<double>(place) / static_cast<double>(places - 1);
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view style,
                    const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n",
                     x, y, anchor, style, html_escaped(text));
}

std::string frame(const LineChart& chart, const Scale& scale) {
  std::string out;
  for (const double tick : scale.ticks) {
    const double y = scale.y(tick);
    out += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" class=\"grid\"/>\n",
                       left, width - right, y, y);
    out += text_at(left - 8, y + 4, "end", "label", tick_name(tick));
  }
  for (std::size_t i = 0; i < chart.places.size(); ++i) {
    out += text_at(x_of(i, chart.places.size()), height - bottom + 18, "middle", "label",
                   chart.places[i]);
  }
  out += text_at((left + width - right) / 2, height - 8, "middle", "label", chart.across);
  out += text_at(
      left - 48, 16, "start", "title",
      fmt::format("{} ({}{})", chart.title, chart.unit, scale.logarithmic ? ", logarithmic" : ""));
  return out;
}

std::string curve_svg(const LineChart& chart, std::size_t index, const Scale& scale) {
  const LineChart::Curve& curve = chart.curves[index];
  std::string path, points;
  for (std::size_t i = 0; i < std::min(curve.values.size(), chart.places.size()); ++i) {
    const double value = curve.values[i];
    if (!std::isfinite(value)) continue;
    const double x = x_of(i, chart.places.size());
    const double y = scale.y(value);
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "M" : " L", x, y);
    points += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" class=\"s{}\"><title>{}: {} {:.4g} "
        "{}</title></circle>\n",
        x, y, index, html_escaped(chart.places[i]), html_escaped(curve.name), value,
        html_escaped(chart.unit));
  }
  std::string out =
      path.empty() ? "" : fmt::format("<path d=\"{}\" class=\"s{}\"/>\n", path, index);
  const double legend = left + 116 * static_cast<double>(index);
  out += fmt::format("<path d=\"M{:.1f},34 h20\" class=\"s{}\"/>\n", legend, index);
  return out + points + text_at(legend + 26, 38, "start", "label", curve.name);
}

}  // namespace

std::vector<double> even_ticks(double most) {
  const double power = std::pow(10, std::floor(std::log10(most / 4)));
  double step = power;
  for (const double digit : {1.0, 2.0, 5.0, 10.0}) {
    step = digit * power;
    if (most / step <= 5) break;
  }
  std::vector<double> ticks;
  for (int i = 0; ticks.empty() || ticks.back() < most * (1 - 1e-9); ++i) {
    ticks.push_back(step * i);
  }
  return ticks;
}

std::string LineChart::svg() const {
  const Scale scale = scale_of(curves);
  std::string out = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
                                width, height, html_escaped(title));
  out += frame(*this, scale);
  for (std::size_t i = 0; i < curves.size(); ++i) out += curve_svg(*this, i, scale);
  return out + "</svg>\n";
}

}  // namespace troupe
