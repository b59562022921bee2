#include "parallel/collectives/tree_sum.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

namespace troupe {

namespace {

// The common sizes have loops of their own, which read each term once and vectorise, since the
// parameters do not alias. The parentheses are the contract.
void sum_2(const float* __restrict a, const float* __restrict b, float* __restrict out,
           std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

void sum_4(const float* __restrict a, const float* __restrict b, const float* __restrict c,
           const float* __restrict d, float* __restrict out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

void sum_8(const float* const* terms, float* __restrict out, std::size_t count) {
  const float* __restrict a = terms[0];
  const float* __restrict b = terms[1];
  const float* __restrict c = terms[2];
  const float* __restrict d = terms[3];
  const float* __restrict e = terms[4];
  const float* __restrict f = terms[5];
  const float* __restrict g = terms[6];
  const float* __restrict h = terms[7];
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = ((a[i] + b[i]) + (c[i] + d[i])) + ((e[i] + f[i]) + (g[i] + h[i]));
  }
}

constexpr std::size_t block_elements = 512;  // 2 KiB of stack per level of the tree

// Sums elements [begin, begin + count) of the terms, count <= block_elements.
void sum_block(std::span<const float* const> terms, std::size_t begin, float* out,
               std::size_t count) {
  if (terms.size() == 1) {
    std::memcpy(out, terms[0] + begin, count * sizeof(float));
  } else if (terms.size() == 2) {
    sum_2(terms[0] + begin, terms[1] + begin, out, count);
  } else {
    const std::size_t half = left_terms(terms.size());
    std::array<float, block_elements> left;
    std::array<float, block_elements> right;
    sum_block(terms.first(half), begin, left.data(), count);
    sum_block(terms.subspan(half), begin, right.data(), count);
    sum_2(left.data(), right.data(), out, count);
  }
}

}  // namespace

void tree_sum(std::span<const float* const> terms, float* out, std::size_t count) {
  assert(!terms.empty());
  if (count == 0) return;
  switch (terms.size()) {
    case 1:
      std::memcpy(out, terms[0], count * sizeof(float));
      return;
    case 2:
      sum_2(terms[0], terms[1], out, count);
      return;
    case 4:
      sum_4(terms[0], terms[1], terms[2], terms[3], out, count);
      return;
    case 8:
      sum_8(terms.data(), out, count);
      return;
    default:
      break;
  }
  for (std::size_t begin = 0; begin < count; begin += block_elements) {
    sum_block(terms, begin, out + begin, std::min(block_elements, count - begin));
  }
}

void tree_sum(const float* partials, int terms, std::size_t stride, float* out, std::size_t count) {
  assert(terms >= 1 && terms <= max_strided_terms);
  std::array<const float*, max_strided_terms> rows;
  for (int t = 0; t < terms; ++t) rows[t] = partials + static_cast<std::size_t>(t) * stride;
  tree_sum(std::span<const float* const>(rows.data(), static_cast<std::size_t>(terms)), out, count);
}

}  // namespace troupe
