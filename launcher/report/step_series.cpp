#include "launcher/report/step_series.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

/// Returns how many of `amount` whole items fall into the first `share` of an interval.
std::uint64_t part_of(std::uint64_t amount, double share) {
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(amount) * share));
}

}  // namespace

void StepSeries::Bucket::add(const Bucket& other) {
  steps += other.steps;
  prompt_tokens += other.prompt_tokens;
  prefix_tokens += other.prefix_tokens;
  output_tokens += other.output_tokens;
  weight += other.weight;
  running += other.running;
  waiting += other.waiting;
  kv_use += other.kv_use;
  max_kv_use = std::max(max_kv_use, other.max_kv_use);
}

void StepSeries::add(std::size_t domain, const StepRecord& record) {
  if (record.steps == 0) return;
  peak_kv_use_ = std::max(peak_kv_use_, record.max_kv_use);
  if (domains_.size() <= domain) domains_.resize(domain + 1);
  const std::int64_t end = std::max<std::int64_t>(record.answered_us - begin_us_, 1);
  while ((end - 1) / width_us_ >= static_cast<std::int64_t>(max_buckets)) halve();
  Domain& of = domains_[domain];
  // Two results may have come in the same microsecond.
  const std::int64_t begin =
      std::min(std::max(record.planned_us - begin_us_, of.answered_us), end - 1);
  of.answered_us = std::max(of.answered_us, end);

  const auto first = static_cast<std::size_t>(begin / width_us_);
  const auto last = static_cast<std::size_t>((end - 1) / width_us_);
  if (of.buckets.size() <= last) of.buckets.resize(last + 1);
  const auto length = static_cast<double>(end - begin);
  const auto count = static_cast<double>(record.steps);
  double from = 0;
  for (std::size_t i = first; i <= last; ++i) {
    const std::int64_t until = std::min(end, static_cast<std::int64_t>(i + 1) * width_us_);
    const double to = static_cast<double>(until - begin) / length;
    const auto here = [&](std::uint64_t amount) {
      return part_of(amount, to) - part_of(amount, from);
    };
    const double us = (to - from) * length;
    of.buckets[i].add({.steps = here(record.steps),
                       .prompt_tokens = here(record.prompt_tokens),
                       .prefix_tokens = here(record.prefix_tokens),
                       .output_tokens = here(record.output_tokens),
                       .weight = us,
                       .running = us * static_cast<double>(record.running) / count,
                       .waiting = us * static_cast<double>(record.waiting) / count,
                       .kv_use = us * record.kv_use / count,
                       .max_kv_use = record.max_kv_use});
    from = to;
  }
}

void StepSeries::halve() {
  width_us_ *= 2;
  for (Domain& domain : domains_) {
    std::vector<Bucket> wider((domain.buckets.size() + 1) / 2);
    for (std::size_t i = 0; i < domain.buckets.size(); ++i) wider[i / 2].add(domain.buckets[i]);
    domain.buckets = std::move(wider);
  }
}

std::vector<StepSeries::Point> StepSeries::points(std::size_t most) const {
  std::size_t buckets = 0;
  for (const Domain& domain : domains_) buckets = std::max(buckets, domain.buckets.size());
  if (buckets == 0 || most == 0) return {};
  const std::size_t together = (buckets + most - 1) / most;
  const double width = static_cast<double>(width_us_) * static_cast<double>(together) * 1e-6;

  std::vector<Point> points((buckets + together - 1) / together);
  for (std::size_t i = 0; i < points.size(); ++i) {
    points[i].seconds = width * static_cast<double>(i);
    points[i].width = width;
  }
  for (const Domain& domain : domains_) {
    for (std::size_t i = 0; i * together < domain.buckets.size(); ++i) {
      Bucket sum;
      const std::size_t end = std::min((i + 1) * together, domain.buckets.size());
      for (std::size_t bucket = i * together; bucket < end; ++bucket) {
        sum.add(domain.buckets[bucket]);
      }
      if (sum.weight == 0) continue;
      Point& point = points[i];
      point.steps += sum.steps;
      point.prompt_tokens += sum.prompt_tokens;
      point.prefix_tokens += sum.prefix_tokens;
      point.output_tokens += sum.output_tokens;
      point.max_kv_use = std::max(point.max_kv_use, sum.max_kv_use);
      point.running += sum.running / sum.weight;
      point.waiting += sum.waiting / sum.weight;
      point.kv_use += sum.kv_use / sum.weight / static_cast<double>(domains_.size());
    }
  }
  return points;
}

}  // namespace troupe
