#include "parallel/collectives/peer/sum_words.cuh"

namespace troupe {
namespace {

using namespace sums;

struct Parts {
  const void* of[max_peer_ranks];
};

template <int ranks, class T, class Out, int each>
__global__ void __launch_bounds__(threads) sum_parts(Parts parts, std::int64_t words, Out* sum) {
  using In = Words<T, each>;
  const std::int64_t stride = std::int64_t{gridDim.x} * threads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < words; i += stride) {
    In terms[ranks];
#pragma unroll
    for (int rank = 0; rank < ranks; ++rank) {
      terms[rank] = static_cast<const In*>(parts.of[rank])[i];
    }
    Words<Out, each> added;
    add_words<ranks, T, Out, each>(terms, added);
    reinterpret_cast<Words<Out, each>*>(sum)[i] = added;
  }
}

}  // namespace

cudaError_t launch_tree_sum(std::span<const void* const> parts, DType dtype, const Tensor& sum,
                            cudaStream_t stream) {
  if (sum.empty()) return cudaSuccess;
  Parts pointers{};
  std::ranges::copy(parts, pointers.of);
  bool wide = sum.elements() % 8 == 0 && is_aligned(sum.data(), 32);
  for (const void* part : parts) wide = wide && is_aligned(part, 32);
  const auto launch = [&](auto ranks, auto in, auto out) {
    using T = decltype(in);
    using Out = decltype(out);
    auto* to = static_cast<Out*>(sum.data());
    constexpr std::int64_t most = 4096;
    if (wide) {
      const std::int64_t words = sum.elements() / 8;
      sum_parts<ranks, T, Out, 8>
          <<<blocks_of(words, most), threads, 0, stream>>>(pointers, words, to);
    } else {
      sum_parts<ranks, T, Out, 1>
          <<<blocks_of(sum.elements(), most), threads, 0, stream>>>(pointers, sum.elements(), to);
    }
  };
  const auto count = static_cast<int>(parts.size());
  if (dtype == DType::f32 && sum.dtype() == DType::bf16) {
    with_ranks(count, [&](auto ranks) { launch(ranks, float(), bf16()); });
  } else {
    with_types(count, dtype, sum.dtype(), launch);
  }
  return cudaPeekAtLastError();
}

cudaError_t launch_sum_of_terms(std::span<const void* const> terms, DType dtype, const Tensor& sum,
                                float* room, cudaStream_t stream) {
  if (terms.size() <= max_peer_ranks) return launch_tree_sum(terms, dtype, sum, stream);
  const void* groups[max_peer_ranks];
  const std::size_t count = peer_groups(terms.size());
  for (std::size_t group = 0; group < count; ++group) {
    float* const part = room + group * static_cast<std::size_t>(sum.elements());
    const auto own = terms.subspan(group * max_peer_ranks);
    const cudaError_t error =
        launch_tree_sum(own.first(std::min<std::size_t>(own.size(), max_peer_ranks)), dtype,
                        Tensor(part, DType::f32, {sum.elements()}), stream);
    if (error != cudaSuccess) return error;
    groups[group] = part;
  }
  return launch_tree_sum(std::span(groups).first(count), DType::f32, sum, stream);
}

}  // namespace troupe
