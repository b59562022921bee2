#include "launcher/report/step_series.hpp"

#include <algorithm>

namespace troupe {
namespace {

const StepRecord nothing{.steps = 0};

void merge(StepRecord& bucket, const StepRecord& record) {
  if (bucket.steps == 0) {
    bucket = record;
  } else if (record.steps > 0) {
    bucket.add(record);
  }
}

/// The means of a domain in one stretch of time.
struct Level {
  double running = 0;
  double waiting = 0;
  double kv_use = 0;
};

Level level_of(const StepRecord& steps) {
  const auto count = static_cast<double>(steps.steps);
  return {static_cast<double>(steps.running) / count, static_cast<double>(steps.waiting) / count,
          steps.kv_use / count};
}

}  // namespace

void StepSeries::add(std::size_t domain, const StepRecord& record) {
  if (record.steps == 0) return;
  if (domains_.size() <= domain) domains_.resize(domain + 1);
  const std::int64_t at = std::max<std::int64_t>(record.answered_us - begin_us_, 0);
  while (at / width_us_ >= static_cast<std::int64_t>(most_buckets)) halve();
  Buckets& buckets = domains_[domain];
  const auto index = static_cast<std::size_t>(at / width_us_);
  if (buckets.size() <= index) buckets.resize(index + 1, nothing);
  merge(buckets[index], record);
}

void StepSeries::halve() {
  width_us_ *= 2;
  for (Buckets& buckets : domains_) {
    Buckets wider((buckets.size() + 1) / 2, nothing);
    for (std::size_t i = 0; i < buckets.size(); ++i) merge(wider[i / 2], buckets[i]);
    buckets = std::move(wider);
  }
}

std::size_t StepSeries::length() const {
  std::size_t length = 0;
  for (const Buckets& buckets : domains_) length = std::max(length, buckets.size());
  return length;
}

std::vector<StepSeries::Point> StepSeries::points(std::size_t most) const {
  const std::size_t buckets = length();
  if (buckets == 0 || most == 0) return {};
  std::uint64_t most_steps = 1;
  for (const Buckets& domain : domains_) {
    std::uint64_t steps = 0;
    for (const StepRecord& bucket : domain) steps += bucket.steps;
    most_steps = std::max(most_steps, steps);
  }
  const std::size_t wanted = std::clamp<std::size_t>(most_steps / 2, 1, most);
  const std::size_t together = (buckets + wanted - 1) / wanted;
  const double width = static_cast<double>(width_us_) * static_cast<double>(together) * 1e-6;

  std::vector<Point> points((buckets + together - 1) / together);
  for (std::size_t i = 0; i < points.size(); ++i) {
    points[i].seconds = width * static_cast<double>(i);
    points[i].width = width;
  }
  for (const Buckets& domain : domains_) {
    Level level;
    for (std::size_t i = 0; i * together < domain.size(); ++i) {
      StepRecord sum = nothing;
      const std::size_t end = std::min((i + 1) * together, domain.size());
      for (std::size_t bucket = i * together; bucket < end; ++bucket) merge(sum, domain[bucket]);
      Point& point = points[i];
      point.steps += sum.steps;
      point.prompt_tokens += sum.prompt_tokens;
      point.prefix_tokens += sum.prefix_tokens;
      point.output_tokens += sum.output_tokens;
      point.most_kv_use = std::max(point.most_kv_use, sum.most_kv_use);
      if (sum.steps > 0) level = level_of(sum);
      point.running += level.running;
      point.waiting += level.waiting;
      point.kv_use += level.kv_use / static_cast<double>(domains_.size());
    }
  }
  return points;
}

double StepSeries::peak_kv_use() const {
  double peak = 0;
  for (const Buckets& domain : domains_) {
    for (const StepRecord& bucket : domain) peak = std::max(peak, bucket.most_kv_use);
  }
  return peak;
}

}  // namespace troupe
