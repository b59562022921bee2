#include "parallel/collectives/peer/sum_kernels.cuh"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe {
namespace {

using namespace peers;
using Row = Words<bf16, word_elements<bf16>>;

constexpr int unit = word_elements<bf16>;  // elements of a thread

/// Finish step: adds the sum to the residual stream and passes on its norm. A block's words are one
/// row. Roundings and the order of the squares are those of the operations one by one.
struct Normed {
  bf16* residual;
  const float* weight;
  float eps;
  int width;
  bool begins;
  float weights[unit];
  Row held;

  __device__ void prepare() {
    const int column = threadIdx.x * unit;
#pragma unroll
    for (int i = 0; i < unit; i += 4) {
      if (column >= width) continue;
      const float4 four = *reinterpret_cast<const float4*>(weight + column + i);
      weights[i] = four.x, weights[i + 1] = four.y, weights[i + 2] = four.z;
      weights[i + 3] = four.w;
    }
  }

  __device__ void fetch(std::int64_t word, bool there) {
    if (there && !begins) held = reinterpret_cast<const Row*>(residual)[word];
  }

  __device__ void finish(Row& row, std::int64_t word, bool there) {
    float values[unit];
    float squares = 0.0F;
    if (there) {
      if (!begins) {
#pragma unroll
        for (int i = 0; i < unit; ++i) narrow(widen(held.of[i]) + widen(row.of[i]), row.of[i]);
      }
      reinterpret_cast<Row*>(residual)[word] = row;
#pragma unroll
      for (int i = 0; i < unit; ++i) {
        values[i] = widen(row.of[i]);
        squares += values[i] * values[i];
      }
    }
    const float scale = rsqrtf(cuda::block_sum(squares) / static_cast<float>(width) + eps);
    if (!there) return;
#pragma unroll
    for (int i = 0; i < unit; ++i) narrow(values[i] * (scale * weights[i]), row.of[i]);
  }
};

template <int ranks>
cudaError_t launch_norm(const PeerCall& call, const AllReduceRmsNorm& sum, const Normed& all,
                        cudaStream_t stream) {
  const std::int64_t rows = sum.partial[0], row_words = all.width / unit;
  const auto* partial = static_cast<const bf16*>(sum.partial.data());
  auto* normed = static_cast<bf16*>(sum.normed.data());
  if (!sum.divided) {
    const std::int64_t most = box_words / ranks / row_words;
    for (std::int64_t done = 0; done < rows; done += most) {
      const Extent extent{std::min(most, rows - done) * row_words, row_words};
      Normed piece = all;
      piece.residual += done * all.width;
      const cudaError_t error = cuda::launch_early(
          sum_whole<ranks, bf16, bf16, Normed>, grid_of(extent.words, row_words), stream, call,
          extent, partial + done * all.width, normed + done * all.width, piece);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  }
  const std::int64_t most = box_words / (2 * ranks) / row_words * row_words;
  Shares shares{.words = rows * row_words,
                .share = (rows + ranks - 1) / ranks * row_words,
                .per_block = row_words};
  for (; shares.begin < shares.share; shares.begin += most) {
    shares.count = std::min(most, shares.share - shares.begin);
    const cudaError_t error =
        cuda::launch_early(sum_shares<ranks, bf16, bf16, Normed>, grid_of(shares.count, row_words),
                           stream, call, shares, partial, normed, all);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

/// Norms rows that are already local: a block handles one at a time.
template <int ranks>
__global__ void __launch_bounds__(resident_threads)
    norm_rows(const __grid_constant__ RankRows rows, std::int64_t count, bf16* normed,
              Normed finish) {
  finish.prepare();
  const int row_words = finish.width / unit;
  const bool there = threadIdx.x < row_words;
  for (std::int64_t row = blockIdx.x; row < count; row += gridDim.x) {
    const std::int64_t word = row * row_words + threadIdx.x;
    finish.fetch(word, there);
    Row added{};
    if (there) {
      Row parts[ranks];
#pragma unroll
      for (int rank = 0; rank < ranks; ++rank) {
        parts[rank] = reinterpret_cast<const Row*>(rows.of[rank])[word];
      }
      add_words<ranks, bf16, bf16, unit>(parts, added);
    }
    finish.finish(added, word, there);
    if (there) reinterpret_cast<Row*>(normed)[word] = added;
  }
}

Normed normed_of(const AllReduceRmsNorm& sum) {
  return {.residual = static_cast<bf16*>(sum.residual.data()),
          .weight = sum.weight.as<float>(),
          .eps = sum.eps,
          .width = static_cast<int>(sum.partial[1]),
          .begins = sum.begins,
          .weights = {},
          .held = {}};
}

}  // namespace

cudaError_t launch_norm_of_rows(const RankRows& rows, int ranks, const AllReduceRmsNorm& sum,
                                Slice share, cudaStream_t stream) {
  if (share.count == 0) return cudaSuccess;
  const Normed finish = normed_of(sum);
  auto* const normed = static_cast<bf16*>(sum.normed.data()) + share.begin * finish.width;
  const cuda::Grid grid = grid_of(share.count * (finish.width / unit), finish.width / unit);
  with_ranks(ranks, [&](auto count) {
    if constexpr (count > 1) {
      norm_rows<count><<<grid.blocks, grid.threads, 0, stream>>>(rows, share.count, normed, finish);
    }
  });
  return cudaGetLastError();
}

cudaError_t load_norm_of_rows(int ranks) {
  cudaError_t error = cudaSuccess;
  with_ranks(ranks, [&](auto count) {
    if constexpr (count > 1) {
      cudaFuncAttributes unused{};
      error = cudaFuncGetAttributes(&unused, norm_rows<count>);
    }
  });
  return error;
}

bool takes_peer_norm(DType dtype, std::int64_t width) {
  return dtype == DType::bf16 && width % unit == 0 && width / unit <= resident_threads;
}

cudaError_t launch_peer_norm(const PeerCall& call, const AllReduceRmsNorm& sum,
                             cudaStream_t stream) {
  if (sum.partial.empty()) return cudaSuccess;
  const Normed normed = normed_of(sum);
  cudaError_t error = cudaSuccess;
  with_ranks(call.size, [&](auto ranks) {
    if constexpr (ranks > 1) error = launch_norm<ranks>(call, sum, normed, stream);
  });
  return error;
}

}  // namespace troupe
