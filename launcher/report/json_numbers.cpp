#include "launcher/report/json_numbers.hpp"

#include <cmath>
#include <cstddef>
#include <utility>

namespace troupe {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t max_bins = 48;

}  // namespace

double rounded(double value) {
  // Values smaller than any measurement would make the scale infinite.
  if (!std::isfinite(value) || std::abs(value) < 1e-100) return 0;
  const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

ordered_json distribution_json(const Distribution& of, double unit) {
  return {{"mean", of.mean * unit},
          {"p50", of.p50 * unit},
          {"p95", of.p95 * unit},
          {"p99", of.p99 * unit}};
}

ordered_json distribution_json(const DistributionSketch& of) {
  constexpr double ms = 1e-3;
  ordered_json bins = ordered_json::array();
  for (const auto& bin : of.bins(max_bins)) {
    bins.push_back({rounded(bin.from_us * ms), rounded(bin.to_us * ms), bin.count});
  }
  ordered_json json = {{"count", of.count()}, {"exact", of.exact()}};
  json.update(distribution_json({.mean = rounded(of.mean_us() * ms),
                                 .p50 = rounded(of.quantile_us(0.50) * ms),
                                 .p95 = rounded(of.quantile_us(0.95) * ms),
                                 .p99 = rounded(of.quantile_us(0.99) * ms)}));
  json["least"] = rounded(static_cast<double>(of.min_us()) * ms);
  json["most"] = rounded(static_cast<double>(of.max_us()) * ms);
  json["bins"] = std::move(bins);
  return json;
}

}  // namespace troupe
