#include "models/layers/rope_table.hpp"

#include <cmath>

namespace troupe {

HostTensor rope_table(const RopeConfig& rope, std::int64_t positions, std::int64_t head_dim) {
  HostTensor table(DType::f32, {positions, head_dim});
  const std::int64_t half = head_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const auto power = static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
    const float inverse_frequency = 1.0F / power;
    for (std::int64_t position = 0; position < positions; ++position) {
      const float angle = static_cast<float>(position) * inverse_frequency;
      float* row = table->as<float>() + position * head_dim;
      row[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      row[half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
  return table;
}

}  // namespace troupe
