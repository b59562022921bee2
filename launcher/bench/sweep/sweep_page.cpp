#include "launcher/bench/sweep/sweep_page.hpp"

#include <functional>

#include <fmt/format.h>

#include "launcher/bench/sweep/line_chart.hpp"
#include "launcher/bench/sweep/sweep_report.hpp"
#include "launcher/report/html_escaped.hpp"

namespace troupe {
namespace {

constexpr std::string_view page_head = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Troupe: bench sweep</title>
<style>
:root { color-scheme: light dark; --text: #1c2024; --faint: #60646c; --line: #d9dce0;
  --ground: #fcfcfd; --s0: #0b68cb; --s1: #c2410c; --s2: #15803d; --s3: #7e22ce; }
@media (prefers-color-scheme: dark) { :root { --text: #edeef0; --faint: #b0b4ba;
  --line: #363a3f; --ground: #111113; --s0: #70b8ff; --s1: #ff9f6b; --s2: #71d083;
  --s3: #d19dff; } }
body { margin: 0 auto; max-width: 1200px; padding: 1.5rem; color: var(--text);
  background: var(--ground); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; }
pre { overflow-x: auto; font-size: 0.85rem; }
.charts { display: grid; gap: 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
svg { width: 100%; height: auto; }
svg text { fill: var(--text); }
svg .label { font-size: 12px; fill: var(--faint); }
svg .title { font-size: 14px; font-weight: 600; }
svg .grid { stroke: var(--line); }
svg path { fill: none; stroke-width: 2; }
svg path.s0 { stroke: var(--s0); } svg circle.s0 { fill: var(--s0); }
svg path.s1 { stroke: var(--s1); stroke-dasharray: 6 3; } svg circle.s1 { fill: var(--s1); }
svg path.s2 { stroke: var(--s2); stroke-dasharray: 2 3; } svg circle.s2 { fill: var(--s2); }
svg path.s3 { stroke: var(--s3); stroke-dasharray: 8 3 2 3; } svg circle.s3 { fill: var(--s3); }
</style>
</head>
<body>
<h1>Troupe: bench sweep</h1>
)";

using Value = std::function<double(const SweepPoint&)>;

/// Draws curves over the loads of a sweep.
class Plotter {
 public:
  explicit Plotter(const SweepFigures& figures) : figures_(figures) {
    for (const SweepPoint& point : figures.points) {
      places_.push_back(load_name(figures.options, point.load));
    }
  }

  std::string plot(std::string title, std::string unit,
                   const std::vector<std::pair<std::string, Value>>& curves) const {
    LineChart chart{
        .title = std::move(title),
        .unit = std::move(unit),
        .across = figures_.options.by_rate ? "requests arriving a second" : "requests at once",
        .places = places_,
        .curves = {}};
    for (const auto& [name, value] : curves) {
      LineChart::Curve curve{name, {}};
      for (const SweepPoint& point : figures_.points) curve.values.push_back(value(point));
      chart.curves.push_back(std::move(curve));
    }
    return chart.svg();
  }

  std::string percentiles(std::string title, Distribution SweepPoint::* of) const {
    return plot(std::move(title), "ms",
                {{"P50", [of](const SweepPoint& point) { return (point.*of).p50; }},
                 {"P95", [of](const SweepPoint& point) { return (point.*of).p95; }},
                 {"P99", [of](const SweepPoint& point) { return (point.*of).p99; }}});
  }

 private:
  const SweepFigures& figures_;
  std::vector<std::string> places_;
};

}  // namespace

std::string sweep_page(const SweepFigures& figures, const std::string& heading) {
  const Plotter plotter(figures);
  std::string page(page_head);
  page += "<div class=\"charts\">\n";
  page += plotter.plot(
      "Output", "tokens/s",
      {{"all runs", [](const SweepPoint& p) { return p.output_tokens_per_second; }},
       {"least run", [](const SweepPoint& p) { return p.min_output_tokens_per_second; }},
       {"most run", [](const SweepPoint& p) { return p.max_output_tokens_per_second; }}});
  std::vector<std::pair<std::string, Value>> requests = {
      {"answered", [](const SweepPoint& p) { return p.requests_per_second; }}};
  if (figures.options.has_limits()) {
    requests.emplace_back("within limits",
                          [](const SweepPoint& p) { return p.good_requests_per_second; });
  }
  page += plotter.plot("Requests", "per second", requests);
  page += plotter.percentiles("Time to the first token", &SweepPoint::first_token_ms);
  page += plotter.percentiles("Time between tokens", &SweepPoint::per_token_ms);
  page += plotter.percentiles("Time of a whole request", &SweepPoint::whole_ms);
  if (figures.ceilings.known()) {
    page +=
        plotter.plot("Share of the measured ceilings", "%",
                     {{"arithmetic", [](const SweepPoint& p) { return 100 * p.operations_share; }},
                      {"memory", [](const SweepPoint& p) { return 100 * p.bytes_share; }}});
  }
  page += "</div>\n";
  return page + "<pre>" + html_escaped(heading + to_table(figures)) + "</pre>\n</body>\n</html>\n";
}

}  // namespace troupe
