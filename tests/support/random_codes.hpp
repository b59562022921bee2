#pragma once

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>

#include "tests/support/coded_numbers.hpp"

namespace troupe {

/// A way to store a matrix as codes.
struct CodesCase {
  const char* what;
  WeightScheme scheme;
  DType scales = DType::f32;
  WeightEncoding encoding = WeightEncoding::plain;

  /// For names of tests.
  std::string name() const {
    std::string name = what;
    std::ranges::replace_if(name, [](char c) { return std::isalnum(c) == 0; }, '_');
    return name;
  }
};

inline const CodesCase codes_cases[] = {
    {"int8 by row", {.coding = WeightCoding::int8}},
    {"int8 by row, asymmetric", {.coding = WeightCoding::int8, .has_zero_points = true}},
    {"int8 by matrix", {.coding = WeightCoding::int8, .group_rows = 0}, DType::bf16},
    {"packed int8 by 32", {.coding = WeightCoding::packed_int8, .group_columns = 32}, DType::bf16},
    {"packed int4 by 128",
     {.coding = WeightCoding::packed_int4, .group_columns = 128},
     DType::bf16},
    {"packed int4 by 24, asymmetric",
     {.coding = WeightCoding::packed_int4, .group_columns = 24, .has_zero_points = true}},
    {"GPTQ int4 by 64",
     {.coding = WeightCoding::gptq_int4,
      .group_columns = 64,
      .has_zero_points = true,
      .zeros_less_one = true},
     DType::f16},
    {"GPTQ int8 by 128",
     {.coding = WeightCoding::gptq_int8, .group_columns = 128, .has_zero_points = true},
     DType::f16},
    {"AWQ int4 by 128",
     {.coding = WeightCoding::awq_int4, .group_columns = 128, .has_zero_points = true},
     DType::f16},
    {"fp8 by blocks of 128",
     {.coding = WeightCoding::fp8, .group_rows = 128, .group_columns = 128}},
    {"fp8 by row", {.coding = WeightCoding::fp8}, DType::bf16},
    {"MXFP4", {.coding = WeightCoding::mxfp4_packed, .group_columns = 32}, DType::u8},
    {"NVFP4", {.coding = WeightCoding::nvfp4_packed, .group_columns = 16}, DType::f8_e4m3}};

/// A matrix of random codes, and the memory of its tensors.
struct RandomCodes {
  HostTensor codes, scales, zeros;
  StoredMatrix matrix;
};

namespace random_codes_detail {

inline void put_scale(const Tensor& scales, std::int64_t i, float value) {
  if (scales.dtype() == DType::u8) {
    scales.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(120 + i % 5);
  } else if (scales.dtype() == DType::f8_e4m3) {
    static_cast<std::uint8_t*>(scales.data())[i] = static_cast<std::uint8_t>(i * 29 % 0x7F);
  } else if (scales.dtype() == DType::bf16) {
    scales.as<BFloat16>()[i] = to_bfloat16(value);
  } else if (scales.dtype() == DType::f16) {
    static_cast<std::uint16_t*>(scales.data())[i] =
        static_cast<std::uint16_t>(0x2000 + i * 37 % 0x400);  // 0.0078 to 0.0156
  } else {
    scales.as<float>()[i] = value;
  }
}

inline HostTensor random_bytes(std::mt19937& engine, DType dtype, Shape shape,
                               WeightCoding coding) {
  HostTensor bytes(dtype, shape);
  std::uniform_int_distribution<int> byte(0, 255);
  for (std::size_t i = 0; i < bytes->bytes(); ++i) {
    auto value = static_cast<std::uint8_t>(byte(engine));
    if (coding == WeightCoding::fp8 && (value & 0x7F) == 0x7F) value ^= 1;  // NaN
    static_cast<std::uint8_t*>(bytes->data())[i] = value;
  }
  return bytes;
}

}  // namespace random_codes_detail

inline RandomCodes random_codes(std::mt19937& engine, const CodesCase& c, std::int64_t n,
                                std::int64_t k) {
  using namespace random_codes_detail;
  const WeightFormat& format = weight_format(c.scheme.coding);
  const Shape groups = groups_of(c.scheme, {n, k});
  const bool has_words = format.file_type == "I32";
  RandomCodes made;
  made.codes = random_bytes(engine, has_words ? DType::i32 : DType::u8, format.codes_shape({n, k}),
                            c.scheme.coding);
  made.scales = HostTensor(c.scales, format.scales_shape(groups));
  std::normal_distribution<float> scale(0.0F, 0.05F);
  for (std::int64_t i = 0; i < made.scales->elements(); ++i) {
    put_scale(made.scales, i, std::abs(scale(engine)) + 0.01F);
  }
  StoredTensor stored{.view = made.codes,
                      .format = &format,
                      .scheme = c.scheme,
                      .groups = groups,
                      .companion = made.scales,
                      .tensor_scale = format.tensor_scale.empty() ? 1.0F : 3.7e-4F};
  if (c.scheme.has_zero_points) {
    made.zeros = random_bytes(engine, has_words ? DType::i32 : DType::u8,
                              format.zero_points_shape(groups, {n, k}), WeightCoding::int8);
    stored.zero_points = made.zeros;
  }
  made.matrix = whole_matrix(stored, n, k);
  return made;
}

/// Columns [begin, begin + count) of the matrix.
inline StoredMatrix columns_of(const StoredMatrix& matrix, std::int64_t begin, std::int64_t count) {
  StoredMatrix part = matrix;
  part.columns = count;
  for (StoredPart& p : part.parts) p.cols = {begin, count};
  return part;
}

}  // namespace troupe
