#include "parallel/device/convert.hpp"

#include <cstring>

namespace troupe {

float read_element(const Tensor& tensor, std::int64_t i) {
  switch (tensor.dtype()) {
    case DType::bf16:
      return to_float(tensor.as<BFloat16>()[i]);
    case DType::f16:
      return half_to_float(static_cast<const std::uint16_t*>(tensor.data())[i]);
    default:
      return tensor.as<float>()[i];
  }
}

void convert(const Tensor& source, const Tensor& target) {
  if (source.dtype() == target.dtype()) {
    std::memcpy(target.data(), source.data(), source.bytes());
    return;
  }
  for (std::int64_t i = 0; i < source.elements(); ++i) {
    const float value = read_element(source, i);
    if (target.dtype() == DType::f32) {
      target.as<float>()[i] = value;
    } else {
      target.as<BFloat16>()[i] = to_bfloat16(value);
    }
  }
}

}  // namespace troupe
