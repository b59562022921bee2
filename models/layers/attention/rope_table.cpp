#include "models/layers/attention/rope_table.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>
#include <vector>

namespace troupe {

namespace {

constexpr std::int64_t rows_of_a_thread = 1024;

/// theta^(2i / dim) for each of the dim / 2 angles: the number of positions per radian.
std::vector<float> plain_periods(double theta, std::int64_t dim) {
  std::vector<float> periods;
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    periods.push_back(static_cast<float>(std::pow(theta, static_cast<double>(exponent))));
  }
  return periods;
}

std::vector<float> plain_frequencies(double theta, std::int64_t dim) {
  std::vector<float> frequencies = plain_periods(theta, dim);
  for (float& x : frequencies) x = 1.0F / x;
  return frequencies;
}

float llama3_frequency(float frequency, const Llama3RopeScaling& scaling) {
  const auto factor = static_cast<float>(scaling.factor);
  const auto low = static_cast<float>(scaling.low_factor);
  const auto high = static_cast<float>(scaling.high_factor);
  const auto positions = static_cast<float>(scaling.original_positions);
  const float wavelength = 2.0F * std::numbers::pi_v<float> / frequency;
  if (wavelength > positions / low) return frequency / factor;
  if (wavelength < positions / high) return frequency;
  const float kept = (positions / wavelength - low) / (high - low);
  return (1.0F - kept) * frequency / factor + kept * frequency;
}

/// The dimension that turns `turns` times in the original length (Peng et al. 2023, section 3.2).
double yarn_dimension(double turns, double theta, double dim, const YarnRopeScaling& scaling) {
  const double wavelengths = scaling.original_positions / (turns * 2.0 * std::numbers::pi);
  return dim * std::log(wavelengths) / (2.0 * std::log(theta));
}

std::vector<float> yarn_frequencies(double theta, std::int64_t dim,
                                    const YarnRopeScaling& scaling) {
  const auto width = static_cast<double>(dim);
  double low = yarn_dimension(scaling.fast_turns, theta, width, scaling);
  double high = yarn_dimension(scaling.slow_turns, theta, width, scaling);
  if (scaling.whole_dimensions) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, width - 1.0);
  if (low == high) high += 0.001;
  std::vector<float> frequencies = plain_periods(theta, dim);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float period = frequencies[i];
    const float ramp =
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1.0F - std::clamp(ramp, 0.0F, 1.0F);
    const float stretched = 1.0F / (static_cast<float>(scaling.factor) * period);
    frequencies[i] = stretched * (1.0F - kept) + 1.0F / period * kept;
  }
  return frequencies;
}

/// The base for a sequence of `tokens`, which is longer than the original length.
double dynamic_theta(double theta, double tokens, std::int64_t dim,
                     const DynamicRopeScaling& scaling) {
  const auto width = static_cast<double>(dim);
  const double growth =
      scaling.factor * tokens / scaling.original_positions - (scaling.factor - 1.0);
  return theta * std::pow(growth, width / (width - 2.0));
}

/// The factor of cosines and sines.
double table_factor(const RopeConfig& rope) {
  if (const auto* yarn = std::get_if<YarnRopeScaling>(&rope.scaling)) return yarn->table_factor;
  const auto* long_rope = std::get_if<LongRopeScaling>(&rope.scaling);
  return long_rope == nullptr ? 1.0 : long_rope->table_factor;
}

std::vector<float> long_rope_frequencies(double theta, std::int64_t dim, std::int64_t positions,
                                         const LongRopeScaling& scaling) {
  const bool is_long = static_cast<double>(positions) > scaling.original_positions;
  const std::vector<double>& factors = is_long ? scaling.long_factors : scaling.short_factors;
  std::vector<float> frequencies = plain_periods(theta, dim);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = 1.0F / (static_cast<float>(factors[i]) * frequencies[i]);
  }
  return frequencies;
}

/// The frequencies at all positions; for dynamic scaling, at those within the original length.
std::vector<float> frequencies_of(const RopeConfig& rope, std::int64_t dim,
                                  std::int64_t positions) {
  if (const auto* scaling = std::get_if<LongRopeScaling>(&rope.scaling)) {
    return long_rope_frequencies(rope.theta, dim, positions, *scaling);
  }
  if (const auto* yarn = std::get_if<YarnRopeScaling>(&rope.scaling)) {
    return yarn_frequencies(rope.theta, dim, *yarn);
  }
  std::vector<float> frequencies = plain_frequencies(rope.theta, dim);
  if (const auto* linear = std::get_if<LinearRopeScaling>(&rope.scaling)) {
    for (float& x : frequencies) x /= static_cast<float>(linear->factor);
  } else if (const auto* llama3 = std::get_if<Llama3RopeScaling>(&rope.scaling)) {
    for (float& x : frequencies) x = llama3_frequency(x, *llama3);
  }
  return frequencies;
}

/// Computes rows [begin, end) of `table`, which are zeros. `frequencies`: those of frequencies_of.
void fill_rows(const RopeConfig& rope, std::vector<float> frequencies, std::int64_t begin,
               std::int64_t end, const Tensor& table) {
  const std::int64_t head_dim = table.shape()[1], half = head_dim / 2;
  const auto turning = static_cast<std::int64_t>(frequencies.size());
  const auto* dynamic = std::get_if<DynamicRopeScaling>(&rope.scaling);
  const double factor = table_factor(rope);
  for (std::int64_t position = begin; position < end; ++position) {
    const auto tokens = static_cast<double>(position + 1);
    if (dynamic != nullptr && tokens > dynamic->original_positions) {
      const double theta = dynamic_theta(rope.theta, tokens, 2 * turning, *dynamic);
      frequencies = plain_frequencies(theta, 2 * turning);
    }
    float* row = table.as<float>() + position * head_dim;
    for (std::int64_t i = 0; i < turning; ++i) {
      const float angle = static_cast<float>(position) * frequencies[static_cast<std::size_t>(i)];
      row[i] = static_cast<float>(std::cos(static_cast<double>(angle)) * factor);
      row[half + i] = static_cast<float>(std::sin(static_cast<double>(angle)) * factor);
    }
    std::fill(row + turning, row + half, 1.0F);
  }
}

}  // namespace

HostTensor rope_table(const RopeConfig& rope, std::int64_t positions, std::int64_t head_dim,
                      std::int64_t rotated, int threads) {
  HostTensor table(DType::f32, {positions, head_dim});
  const std::vector<float> frequencies =
      frequencies_of(rope, rotated == 0 ? head_dim : rotated, positions);
  // A thread's rows take longer than its start.
  const std::int64_t parts =
      std::clamp(positions / rows_of_a_thread, std::int64_t{1}, std::int64_t{threads});
  std::vector<std::jthread> others;
  for (std::int64_t part = 1; part < parts; ++part) {
    others.emplace_back([&, part] {
      fill_rows(rope, frequencies, positions * part / parts, positions * (part + 1) / parts, table);
    });
  }
  fill_rows(rope, frequencies, 0, positions / parts, table);
  others.clear();  // waits for them
  return table;
}

}  // namespace troupe
