#include "parallel/collectives/peer/sum_kernels.cuh"

namespace troupe {
namespace {

using namespace peers;

constexpr std::int64_t sum_block = 256;

/// Finish step that leaves a sum as it is.
struct Kept {
  __device__ void prepare() {}
  __device__ void fetch(std::int64_t, bool) {}
  template <class Word>
  __device__ void finish(Word&, std::int64_t, bool) {}
};

template <int ranks, class T, class Out>
cudaError_t launch_whole(const PeerCall& call, std::int64_t words, const T* partial, Out* sum,
                         cudaStream_t stream) {
  constexpr std::int64_t most = box_words / ranks;
  for (std::int64_t done = 0; done < words; done += most) {
    const Extent extent{std::min(most, words - done), sum_block};
    const cudaError_t error = cuda::launch_early(
        sum_whole<ranks, T, Out, Kept>, grid_of(extent.words, sum_block), stream, call, extent,
        partial + done * word_elements<T>, sum + done * word_elements<T>, Kept{});
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <int ranks, class T, class Out>
cudaError_t launch_shares(const PeerCall& call, std::int64_t words, const T* partial, Out* sum,
                          cudaStream_t stream) {
  constexpr std::int64_t most = box_words / ranks / (1 + sizeof(Out) / sizeof(T));
  Shares shares{.words = words, .share = (words + ranks - 1) / ranks, .per_block = sum_block};
  for (; shares.begin < shares.share; shares.begin += most) {
    shares.count = std::min(most, shares.share - shares.begin);
    const cudaError_t error =
        cuda::launch_early(sum_shares<ranks, T, Out, Kept>, grid_of(shares.count, sum_block),
                           stream, call, shares, partial, sum, Kept{});
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

bool takes_peer_sum(const Tensor& partial, const Tensor& sum) {
  // A word of 16 bytes of bf16 becomes 32 bytes of f32.
  return partial.bytes() % 16 == 0 && is_aligned(partial.data(), 16) && is_aligned(sum.data(), 32);
}

cudaError_t launch_peer_sum(const PeerCall& call, const Tensor& partial, const Tensor& sum,
                            cudaStream_t stream) {
  const auto words = static_cast<std::int64_t>(partial.bytes() / 16);
  const bool whole = call.size == 2 || partial.bytes() <= max_whole_bytes;
  cudaError_t error = cudaSuccess;
  with_types(call.size, partial.dtype(), sum.dtype(), [&](auto ranks, auto in, auto out) {
    using T = decltype(in);
    using Out = decltype(out);
    if constexpr (ranks > 1) {
      const auto* from = static_cast<const T*>(partial.data());
      auto* to = static_cast<Out*>(sum.data());
      error = whole ? launch_whole<ranks, T, Out>(call, words, from, to, stream)
                    : launch_shares<ranks, T, Out>(call, words, from, to, stream);
    }
  });
  return error;
}

}  // namespace troupe
