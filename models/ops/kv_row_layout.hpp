#pragma once

#include <cstdint>

#include "parallel/device/dtype.hpp"

namespace troupe {

/// How a page of the KV cache holds the keys, or the values, of one KV head: for each token
/// `head_dim` elements of `stored`, and behind all of the page's elements the fp16 scales of its
/// codes, [scales, block_size]. The places of elements are those of CPUs; on GPUs keys lie as
/// values. As scales lie in the page, whatever copies or exchanges pages or
/// rows carries them along.
///
/// A code of 8 bits stands for code * scale. Codes of i8 are -127 to 127; those of f8_e4m3 count
/// as E4M3 times 2^-8, so that scales are in the range of fp16. A row has one scale, which is that
/// of its largest magnitude unless AttentionShape fixes it. A latent row has two: one of the latent
/// part and one of the rotated key behind it.
struct KvRowLayout {
  DType stored = DType::f32;      ///< f32, bf16, i8 or f8_e4m3
  std::int64_t head_dim = 0;      ///< elements of a row
  std::int64_t scales = 0;        ///< of a row; 0: the elements are numbers
  std::int64_t first_part = 0;    ///< elements under the first scale
  std::int64_t row_elements = 0;  ///< with the scales, which count as elements of `stored`

  static constexpr KvRowLayout of(std::int64_t head_dim, std::int64_t latent, DType stored) {
    KvRowLayout layout{stored, head_dim, 0, head_dim, head_dim};
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
  /// The place in a page of element i of the token at `offset`, scales included; of 8-bit codes in
  /// bytes. Keys are [head_dim, block_size], values [block_size, head_dim].
  constexpr std::int64_t key_place(std::int64_t i, std::int64_t offset,
                                   std::int64_t block_size) const {
    return i < head_dim ? i * block_size + offset : scale_place(i - head_dim, offset, block_size);
  }
  constexpr std::int64_t value_place(std::int64_t i, std::int64_t offset,
                                     std::int64_t block_size) const {
    return i < head_dim ? offset * head_dim + i : scale_place(i - head_dim, offset, block_size);
  }
  bool operator==(const KvRowLayout&) const = default;

 private:
  /// Of a byte of the token's scales.
  constexpr std::int64_t scale_place(std::int64_t byte, std::int64_t offset,
                                     std::int64_t block_size) const {
    return (head_dim + byte / 2 * 2) * block_size + 2 * offset + byte % 2;
  }
};

}  // namespace troupe
