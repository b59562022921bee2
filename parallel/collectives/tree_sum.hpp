#pragma once

#include <cstddef>
#include <span>

namespace troupe {

/// The one order in which partial sums are added, in fp32, wherever they come from:
///   sum(p0 .. pn-1) = sum(p0 .. ph-1) + sum(ph .. pn-1),  h = the largest power of two < n,
/// so ((p0 + p1) + (p2 + p3)) for four and (p0 + p1) + p2 for three. For n = 2^a terms of which
/// each of 2^b ranks has a contiguous 2^(a-b) and has summed them in this order, the ranks' sums
/// added in this order have the same bits as all terms added by one rank. Every element is summed
/// by itself: its bits do not depend on its place, on `count` or on which thread computes it.

/// out[i] = sum over terms t of terms[t][i], for i in [0, count). At least one term. `out` must not
/// overlap any term. Any thread; allocates nothing.
void tree_sum(std::span<const float* const> terms, float* out, std::size_t count);

/// The same for `terms` rows that lie `stride` elements apart: partials [terms, stride] fp32.
void tree_sum(const float* partials, int terms, std::size_t stride, float* out, std::size_t count);

/// Most terms that the strided form takes.
inline constexpr int max_strided_terms = 64;

}  // namespace troupe
