#include "models/layers/rope_table.hpp"

#include <cmath>
#include <numbers>

namespace troupe {

namespace {

float scaled_frequency(float frequency, const Llama3RopeScaling& scaling) {
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

}  // namespace

HostTensor rope_table(const RopeConfig& rope, std::int64_t positions, std::int64_t head_dim) {
  HostTensor table(DType::f32, {positions, head_dim});
  const std::int64_t half = head_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const auto power = static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
    float frequency = 1.0F / power;
    if (rope.llama3) frequency = scaled_frequency(frequency, *rope.llama3);
    for (std::int64_t position = 0; position < positions; ++position) {
      const float angle = static_cast<float>(position) * frequency;
      float* row = table->as<float>() + position * head_dim;
      row[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      row[half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
  return table;
}

}  // namespace troupe
