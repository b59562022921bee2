// Codes of a lane (coded_panels.hpp) as bf16 operands of the tensor cores.
#pragma once

#include <cstdint>

#include <cuda_fp16.h>

#include "models/ops/coded_panels.hpp"
#include "models/ops/cuda/common/cache_policy.cuh"
#include "models/ops/cuda/common/tensor_map.hpp"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

/// What kernels need to know of CodedPanels.
struct CodeLayout {
  int units, unit_bytes, scales_at, zeros_at;
  int group_chunks;  ///< of 32 columns: 1, 2 or 4
  /// Sums of groups are multiplied by scales that are in units. Not those of 16 columns, with which
  /// codes become numbers.
  bool scales_in_units;
  DType scale_dtype;
};

inline CodeLayout code_layout(const CodedPanels& panels) {
  const bool is_scaled = panels.group_columns > 0 && !panels.has_row_scales();
  const std::int32_t columns = is_scaled ? panels.group_columns : 128;
  return {.units = static_cast<int>(panels.units()),
          .unit_bytes = static_cast<int>(panels.unit_bytes()),
          .scales_at = static_cast<int>(panels.scales_at()),
          .zeros_at = static_cast<int>(panels.zeros_at()),
          .group_chunks = columns / 32,
          .scales_in_units = is_scaled,
          .scale_dtype = panels.scale_dtype};
}

__device__ __forceinline__ std::uint32_t bits_of(__nv_bfloat162 pair) {
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ __forceinline__ __nv_bfloat162 pair_of(std::uint32_t bits) {
  return *reinterpret_cast<const __nv_bfloat162*>(&bits);
}

/// The scales of a row's group in two units: `place` is group * 8 + row.
__device__ __forceinline__ float2 scales_at(const CodeLayout& layout, const unsigned char* upper,
                                            const unsigned char* lower, int place) {
  if (!layout.scales_in_units) return {1.0F, 1.0F};
  upper += layout.scales_at;
  lower += layout.scales_at;
  if (layout.scale_dtype == DType::f32) {
    return {reinterpret_cast<const float*>(upper)[place],
            reinterpret_cast<const float*>(lower)[place]};
  }
  const auto top = reinterpret_cast<const std::uint16_t*>(upper)[place];
  const auto bottom = reinterpret_cast<const std::uint16_t*>(lower)[place];
  if (layout.scale_dtype == DType::f16) {
    return {__half2float(__ushort_as_half(top)), __half2float(__ushort_as_half(bottom))};
  }
  return {__uint_as_float(static_cast<std::uint32_t>(top) << 16),
          __uint_as_float(static_cast<std::uint32_t>(bottom) << 16)};
}

/// What is subtracted from a row's codes of a group, twice.
template <CodeKind kind, bool has_zeros>
__device__ __forceinline__ std::uint32_t offset_at(const CodeLayout& layout,
                                                   const unsigned char* unit, int place) {
  if constexpr (!has_zeros) return kind == CodeKind::int4 ? 0x43084308U : 0U;  // 136
  const auto bits = reinterpret_cast<const std::uint16_t*>(unit + layout.zeros_at)[place];
  return bits * 0x10001U;
}

/// (bits & mask) | rest, in one instruction although both are constants.
__device__ __forceinline__ std::uint32_t merged(std::uint32_t bits, std::uint32_t mask,
                                                std::uint32_t rest) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(bits), "r"(mask), "r"(rest));
  return result;
}

/// A lane's codes of a unit.
template <CodeKind kind, bool has_zeros>
struct LaneCodes {
  static constexpr int words = is_packed(kind) ? 4 : 8;
  std::uint32_t word[words];

  /// From a unit in shared or device memory.
  __device__ __forceinline__ void read(const unsigned char* unit) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < words / 4; ++i) {
      const uint4 four = *reinterpret_cast<const uint4*>(unit + 512 * i + 16 * lane);
      word[4 * i] = four.x, word[4 * i + 1] = four.y;
      word[4 * i + 2] = four.z, word[4 * i + 3] = four.w;
    }
  }

  /// The same of half a unit: its steps are 0 to 3 then.
  __device__ __forceinline__ void read_half(const unsigned char* unit, int half) {
    const int lane = threadIdx.x % 32;
    if constexpr (words == 4) {
      const uint2 two = *reinterpret_cast<const uint2*>(unit + 16 * lane + 8 * half);
      word[0] = two.x, word[1] = two.y;
    } else {
      const uint4 four = *reinterpret_cast<const uint4*>(unit + 512 * half + 16 * lane);
      word[0] = four.x, word[1] = four.y, word[2] = four.z, word[3] = four.w;
    }
  }

  /// Of 4-bit integers: two columns of a step of 16 as bf16, 128 + bits; the lower columns, or
  /// those 8 further. 128 has an exponent with which the lowest bits of the fraction are whole.
  __device__ __forceinline__ std::uint32_t raw_pair(int step, int high) const {
    const std::uint32_t bits = word[step / 2] >> (4 * (step % 2 * 2 + high));
    return merged(bits, 0x000F000FU, 0x43004300U);
  }

  /// Gives the same two columns of 4-bit integers as f16: 1,024 + bits for the lower columns, and
  /// 1,024 + 16 bits for those 8 further.
  __device__ __forceinline__ std::uint32_t raw_halves(int step, int high) const {
    const std::uint32_t bits = word[step / 2] >> (8 * (step % 2));
    return merged(bits, high ? 0x00F000F0U : 0x000F000FU, 0x64006400U);
  }

  /// raw_pair less an offset, and of codes of any kind: their numbers. Exact.
  __device__ __forceinline__ std::uint32_t pair(int step, int high, std::uint32_t offset) const {
    if constexpr (kind == CodeKind::int4) {
      return minus(raw_pair(step, high), offset);
    } else if constexpr (kind == CodeKind::e2m1) {
      const std::uint32_t bits = word[step / 2] << (12 - 4 * (step % 2 * 2 + high));
      return times(merged(bits, 0x80008000U, bits >> 6 & 0x01C001C0U), 0x7E807E80U);  // 2^126
    } else if constexpr (kind == CodeKind::e4m3) {
      const std::uint32_t bits = high ? word[step] : word[step] << 8;
      return times(merged(bits, 0x80008000U, bits >> 4 & 0x07F007F0U), 0x7B807B80U);  // 2^120
    } else {
      // The sign's bit stands for -128: 128 + lower bits, less 128 or 256.
      const std::uint32_t bits = high ? word[step] >> 8 : word[step];
      const std::uint32_t number =
          minus(merged(bits, 0x007F007FU, 0x43004300U), merged(bits, 0x00800080U, 0x43004300U));
      return has_zeros ? minus(number, offset) : number;
    }
  }

 private:
  static __device__ __forceinline__ std::uint32_t minus(std::uint32_t a, std::uint32_t b) {
    return bits_of(__hsub2(pair_of(a), pair_of(b)));
  }
  static __device__ __forceinline__ std::uint32_t times(std::uint32_t a, std::uint32_t b) {
    return bits_of(__hmul2(pair_of(a), pair_of(b)));
  }
};

/// Powers of two that factors of E2M1 are times, so that scales from 2^-93 to 2^33 keep numbers and
/// factors within bf16's normal ones; sums are multiplied by what is left.
constexpr float e2m1_shift = 0x1p94F, e2m1_rest = 0x1p32F;  // of codes times 2^-126

/// What a row's codes of a group are multiplied by to become numbers, twice: `place` is
/// group * 8 + row.
template <CodeKind kind>
__device__ __forceinline__ std::uint32_t factor_at(const CodeLayout& layout,
                                                   const unsigned char* unit, int place) {
  const std::uint32_t bits = reinterpret_cast<const std::uint16_t*>(unit + layout.scales_at)[place];
  if constexpr (kind == CodeKind::e2m1) {
    const float factor = __uint_as_float(bits << 16) * e2m1_shift;
    return bits_of(__floats2bfloat162_rn(factor, factor));
  }
  return bits * 0x10001U;
}

/// Two columns of a step of 16 as numbers, rounded to bf16; the lower columns, or those 8 further.
/// Numbers of E2M1 are e2m1_rest less; times scales of E4M3 they are exact.
template <CodeKind kind, bool has_zeros>
__device__ __forceinline__ std::uint32_t number_pair(const LaneCodes<kind, has_zeros>& codes,
                                                     int step, int high, std::uint32_t offset,
                                                     std::uint32_t factor) {
  if constexpr (kind == CodeKind::e2m1) {
    const std::uint32_t bits = codes.word[step / 2] << (12 - 4 * (step % 2 * 2 + high));
    const std::uint32_t raw = merged(bits, 0x80008000U, bits >> 6 & 0x01C001C0U);
    return bits_of(__hmul2(pair_of(raw), pair_of(factor)));
  }
  return bits_of(__hmul2(pair_of(codes.pair(step, high, offset)), pair_of(factor)));
}

/// What is constant in a kernel for codes. `are_sixteens`: groups have 16 columns (NVFP4), so that
/// step s is group s, and codes become numbers of bf16 with the group's scale.
template <CodeKind kind_, bool has_zeros_, bool are_sixteens_ = false>
struct CodeTraits {
  static constexpr CodeKind kind = kind_;
  static constexpr bool has_zeros = has_zeros_;
  static constexpr bool are_sixteens = are_sixteens_;
  /// Sums are multiplied by it, beside the scales of rows.
  static constexpr float rest = are_sixteens ? e2m1_rest : 1.0F;
};

/// Two columns of a step as an operand: codes less their offset, or numbers of groups of 16.
template <class Traits>
__device__ __forceinline__ std::uint32_t operand_pair(
    const LaneCodes<Traits::kind, Traits::has_zeros>& codes, const CodeLayout& layout,
    const unsigned char* unit, int step, int high, std::uint32_t offset) {
  if constexpr (Traits::are_sixteens) {
    const int place = step * static_cast<int>(panel_rows) + static_cast<int>(threadIdx.x) % 32 / 4;
    return number_pair(codes, step, high, offset, factor_at<Traits::kind>(layout, unit, place));
  }
  return codes.pair(step, high, offset);
}

/// Calls body with the CodeTraits of panels.
template <class Body>
void with_traits(const CodedPanels& panels, const Body& body) {
  const bool has_zeros = panels.has_zero_points;
  switch (panels.kind) {
    case CodeKind::int8:
      return has_zeros ? body(CodeTraits<CodeKind::int8, true>())
                       : body(CodeTraits<CodeKind::int8, false>());
    case CodeKind::e4m3:
      return body(CodeTraits<CodeKind::e4m3, false>());
    case CodeKind::int4:
      return has_zeros ? body(CodeTraits<CodeKind::int4, true>())
                       : body(CodeTraits<CodeKind::int4, false>());
    case CodeKind::e2m1:
      return panels.group_columns == nvfp4_columns ? body(CodeTraits<CodeKind::e2m1, false, true>())
                                                   : body(CodeTraits<CodeKind::e2m1, false>());
  }
}

/// Describes panels to the copy engine, in boxes of `units` of `count` panels; of a gated matrix a
/// panel of the first half is followed by the one of the second half.
inline bool map_panels(const CodedPanels& layout, const void* panels, bool gated, int units,
                       int count, CUtensorMap& map) {
  const auto unit = static_cast<std::uint64_t>(layout.unit_bytes()) / 8;
  const auto of_row = static_cast<std::uint64_t>(layout.units()), all = of_row * unit;
  const auto total = static_cast<std::uint64_t>(layout.panels());
  const auto box = static_cast<std::uint32_t>(count), at_once = static_cast<std::uint32_t>(units);
  const auto width = static_cast<std::uint32_t>(unit);
  TiledTensor tensor = gated ? TiledTensor{panels,
                                           {unit, of_row, 2, total / 2, 1},
                                           {unit, total / 2 * all, all, total * all},
                                           {width, at_once, 2, box / 2, 1}}
                             : TiledTensor{panels,
                                           {unit, of_row, total, 1, 1},
                                           {unit, all, total * all, total * all},
                                           {width, at_once, box, 1, 1}};
  tensor.swizzled = false;
  tensor.element_bytes = 8;
  return make_tensor_map(tensor, map);
}

/// Copies the box that begins with a unit of panel `first` of the alternating order.
__device__ __forceinline__ void copy_panels(std::uint32_t to, const CUtensorMap* map, bool gated,
                                            int unit, int first, std::uint32_t barrier,
                                            std::uint64_t policy) {
  copy_box(to, map, 0, unit, gated ? 0 : first, gated ? first / 2 : 0, 0, barrier, policy);
}

}  // namespace troupe::cuda
