#pragma once

#include <cstdint>

#include "parallel/device/tensor.hpp"

namespace troupe {

/// Element `i` of a tensor of f32, bf16 or f16 on the host.
float read_element(const Tensor& tensor, std::int64_t i);

/// Converts `source` (f32, bf16 or f16) to `target` (f32 or bf16) of as many elements, on the host.
void convert(const Tensor& source, const Tensor& target);

}  // namespace troupe
