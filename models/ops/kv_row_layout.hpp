#pragma once

#include <cstdint>

#include "parallel/device/dtype.hpp"

namespace troupe {

/// The numbers that the 4-bit codes 0 to 15 of a KV cache stand for, times their scale. They were
/// fitted to rows of 128 normal numbers by alternating the scales that store_codes finds with the
/// best levels for them (Lloyd 1982, Max 1960): finer near zero, where most numbers are. Equal
/// steps have 1.3 times the squared error on such rows, 1.5 times on those of a Laplace
/// distribution.
inline constexpr std::int8_t int4_levels[16] = {-127, -96, -76, -60, -46, -34, -22, -11,
                                                0,    11,  23,  34,  47,  62,  80,  106};

/// How a page of the KV cache holds the keys, or the values, of one KV head: for each token
/// `elements` of `stored`, and behind all of the page's elements the fp16 scales of its
/// codes, [scales, block_size]. The places of elements are those of CPUs; on GPUs keys lie as
/// values. As scales lie in the page, whatever copies or exchanges pages or
/// rows carries them along.
///
/// A code stands for code * scale. Codes of i8 are -127 to 127; those of f8_e4m3 count as E4M3
/// times 2^-8, so that scales are in the range of fp16. Those of i4x2 stand for int4_levels, the
/// one of an even element in the lower half of a byte. A row has one scale, which is that of its
/// largest magnitude unless AttentionShape fixes it; of i4x2 it is the one of a few with the least
/// squared error, and may be negative. A latent row has two: one of the latent part and one of the
/// rotated key behind it.
struct KvRowLayout {
  DType stored = DType::f32;      ///< f32, bf16, i8, f8_e4m3 or i4x2
  std::int64_t head_dim = 0;      ///< numbers of a row
  std::int64_t elements = 0;      ///< of `stored` that hold them
  std::int64_t scales = 0;        ///< of a row; 0: the elements are numbers
  std::int64_t first_part = 0;    ///< numbers under the first scale
  std::int64_t row_elements = 0;  ///< with the scales, which count as elements of `stored`

  static constexpr KvRowLayout of(std::int64_t head_dim, std::int64_t latent, DType stored) {
    const std::int64_t elements = stored == DType::i4x2 ? head_dim / 2 : head_dim;
    KvRowLayout layout{stored, head_dim, elements, 0, head_dim, elements};
    if (!is_code(stored)) return layout;
    layout.scales = latent > 0 ? 2 : 1;
    if (latent > 0) layout.first_part = latent;
    layout.row_elements +=
        layout.scales * static_cast<std::int64_t>(size_of(DType::f16) / size_of(stored));
    return layout;
  }
  /// Elements of a page of `block_size` tokens, scales included.
  constexpr std::int64_t page_elements(std::int64_t block_size) const {
    return row_elements * block_size;
  }
  /// The place in a page of element i of the token at `offset`, scales included; of codes in bytes.
  /// Keys are [elements, block_size], values [block_size, elements].
  constexpr std::int64_t key_place(std::int64_t i, std::int64_t offset,
                                   std::int64_t block_size) const {
    return i < elements ? i * block_size + offset : scale_place(i - elements, offset, block_size);
  }
  constexpr std::int64_t value_place(std::int64_t i, std::int64_t offset,
                                     std::int64_t block_size) const {
    return i < elements ? offset * elements + i : scale_place(i - elements, offset, block_size);
  }
  bool operator==(const KvRowLayout&) const = default;

 private:
  /// Of a byte of the token's scales.
  constexpr std::int64_t scale_place(std::int64_t byte, std::int64_t offset,
                                     std::int64_t block_size) const {
    return (elements + byte / 2 * 2) * block_size + 2 * offset + byte % 2;
  }
};

}  // namespace troupe
