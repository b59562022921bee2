#pragma once

#include <bit>
#include <cstddef>
#include <span>

namespace troupe {

/// The one order in which partial sums are added, in fp32, wherever they come from:
///   sum(p0 .. pn-1) = sum(p0 .. ph-1) + sum(ph .. pn-1),  h = the largest power of two < n,
/// so ((p0 + p1) + (p2 + p3)) for four and (p0 + p1) + p2 for three. If n = 2^a terms are spread
/// over 2^b ranks, each of which sums a contiguous 2^(a-b) of them in this order, then adding the
/// ranks' sums in this order gives the same bits as one rank adding all terms. Every element is
/// summed on its own: its bits do not depend on its index, on `count` or on the thread.

/// The h of the order above for n = `terms` >= 2.
constexpr std::size_t left_terms(std::size_t terms) { return std::bit_ceil(terms) / 2; }

/// out[i] = sum over terms t of terms[t][i], for i in [0, count). At least one term. `out` must not
/// overlap any term. Any thread; allocates nothing.
void tree_sum(std::span<const float* const> terms, float* out, std::size_t count);

/// The same for `terms` rows that are `stride` elements apart: partials [terms, stride] fp32.
void tree_sum(const float* partials, int terms, std::size_t stride, float* out, std::size_t count);

/// The most terms that the strided form takes.
inline constexpr int max_strided_terms = 64;

}  // namespace troupe
