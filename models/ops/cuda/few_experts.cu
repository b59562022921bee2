#include "models/ops/cuda/few_experts.hpp"
#include "models/ops/cuda/few_rows.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int warps = 8, threads = warps * 32;
constexpr int tile_columns = 16;  // rows of a matrix that one instruction multiplies
constexpr int tile_rows = 8;      // rows of x
constexpr int most_tokens = 8;    // no expert has more rows
constexpr int most_pairs = 64;

/// Grid: tiles of 8 gates with their ups, then sorted rows: the first of an expert does the work
/// for all of its rows, the others have none.
template <int chunks>
__global__ void __launch_bounds__(threads, 2) gate_few_rows(FewExperts call) {
  constexpr int warp_k = chunk * chunks, step_k = warp_k * warps;
  __shared__ float parts[warps][tile_columns][tile_rows];
  __shared__ int expert, rows;
  if (threadIdx.x == 0) rows = 0;
  __syncthreads();
  wait_for_kernels_before();
  // So late, so that the next kernel finds what was there before this one.
  let_next_kernel_start();
  const int first_row = blockIdx.y;
  for (int e = threadIdx.x; e < call.experts; e += threads) {
    const int begin = call.offsets[e], end = call.offsets[e + 1];
    if (begin == first_row && end > begin) {
      expert = e;
      rows = end - begin;
    }
  }
  __syncthreads();
  if (rows == 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = lane / 4;
  const int hidden = static_cast<int>(call.hidden), inner = static_cast<int>(call.inner);
  constexpr int columns = tile_columns / 2;
  const int column = min(static_cast<int>(blockIdx.x) * columns + own, inner - 1);
  const bf16* upper =
      static_cast<const bf16*>(call.gate_up) + (std::int64_t{expert} * 2 * inner + column) * hidden;
  const bf16* lower = upper + std::int64_t{inner} * hidden;
  const int in_chunk = lane % 4 * 8;
  int at = warp * warp_k + in_chunk;
  FewWeights<chunks> weights;
  weights.read(upper, lower, at, hidden);
  const bf16* row = nullptr;
  if (own < rows) {
    const std::int64_t token = call.source[first_row + own] / call.top_k;
    row = static_cast<const bf16*>(call.x) + token * hidden;
  }
  float sums[4] = {};
  while (true) {
    weights.multiply(row, at, hidden, sums);
    at += step_k;
    if (at - in_chunk >= hidden) break;
    weights.read(upper, lower, at, hidden);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    parts[warp][own][lane % 4 * 2 + i] = sums[i];
    parts[warp][own + columns][lane % 4 * 2 + i] = sums[2 + i];
  }
  __syncthreads();
  if (threadIdx.x >= tile_rows * columns) return;
  const int to_row = threadIdx.x / columns, to_column = threadIdx.x % columns;
  const int inner_column = blockIdx.x * columns + to_column;
  if (to_row >= rows || inner_column >= inner) return;
  const auto sum_of = [&](int of) {
    float sum = parts[0][of][to_row];
#pragma unroll
    for (int w = 1; w < warps; ++w) sum += parts[w][of][to_row];
    return sum;
  };
  const float gate = sum_of(to_column);
  const float value = gate / (1.0F + __expf(-gate)) * sum_of(to_column + columns);
  store(
      static_cast<bf16*>(call.activated) + std::int64_t{first_row + to_row} * inner + inner_column,
      value);
}

/// What a block keeps of a pass's choices. Rows are sorted ones.
struct Plan {
  int expert_at[most_pairs];    // whose first row this is, or -1
  int rows_at[most_pairs];      // that it has then
  int first_of[most_pairs];     // the first row of a row's expert
  int row_of_pair[most_pairs];  // or -1: the expert is elsewhere
  float weights[most_pairs];
};

/// By all threads; ends with a barrier. Returns how many rows there are.
__device__ int make_plan(const FewExperts& call, Plan& plan) {
  const int pairs = static_cast<int>(call.tokens * call.top_k);
  const int own = threadIdx.x;
  // What is read comes at once.
  const int valid = call.offsets[call.experts];
  const int begin = own < call.experts ? call.offsets[own] : 0;
  const int end = own < call.experts ? call.offsets[own + 1] : 0;
  const int pair = own < pairs ? call.source[own] : 0;
  if (own < pairs) plan.weights[own] = call.weights[own];
  if (own < most_pairs) {
    plan.expert_at[own] = -1;
    plan.row_of_pair[own] = -1;
  }
  __syncthreads();
  const auto note = [&](int expert, int from, int to) {
    if (from == to) return;
    plan.expert_at[from] = expert;
    plan.rows_at[from] = to - from;
    for (int row = from; row < to; ++row) plan.first_of[row] = from;
  };
  note(own, begin, end);
  for (int e = own + threads; e < call.experts; e += threads) {
    note(e, call.offsets[e], call.offsets[e + 1]);
  }
  if (own < valid) plan.row_of_pair[pair] = own;
  __syncthreads();
  return valid;
}

/// Grid: tiles of 16 columns of `out`. A warp has every eighth expert, by its first row; two loads
/// of weights take turns. Launched behind gate_few_rows alone: what that kernel waited for is there
/// when this one begins, so weights are on their way before the gates are through.
template <class Out>
__global__ void __launch_bounds__(threads, 1) add_few_rows(FewExperts call, Out* out) {
  constexpr int chunks = 8, step_k = chunk * chunks;
  __shared__ float parts[most_pairs][tile_columns][tile_rows];  // by an expert's first row
  __shared__ Plan plan;
  let_next_kernel_start();
  const int valid = make_plan(call, plan);
  const int lane = threadIdx.x % 32, own = lane / 4, in_chunk = lane % 4 * 8;
  const int hidden = static_cast<int>(call.hidden), inner = static_cast<int>(call.inner);
  const int begin = blockIdx.x * tile_columns;
  const int upper_row = min(begin + own, hidden - 1), lower_row = min(begin + own + 8, hidden - 1);
  struct Place {
    int row, k;
  };
  const auto find = [&](int row) {
    while (row < valid && plan.expert_at[row] < 0) row += warps;
    return row;
  };
  const auto advance = [&](Place& place) {
    place.k += step_k;
    if (place.k >= inner) place = {find(place.row + warps), 0};
  };
  const auto read = [&](FewWeights<chunks>& weights, const Place& place) {
    if (place.row >= valid) return;
    const auto* matrix = static_cast<const bf16*>(call.down) +
                         std::int64_t{plan.expert_at[place.row]} * hidden * inner;
    weights.read(matrix + std::int64_t{upper_row} * inner, matrix + std::int64_t{lower_row} * inner,
                 place.k + in_chunk, inner);
  };
  FewWeights<chunks> weights[2];
  Place now{find(threadIdx.x / 32), 0}, next = now;
#pragma unroll
  for (auto& turn : weights) {
    read(turn, next);
    if (next.row < valid) advance(next);
  }
  wait_for_kernels_before();
  float sums[4] = {};
  while (now.row < valid) {
#pragma unroll
    for (auto& turn : weights) {
      if (now.row >= valid) break;
      const bf16* x = nullptr;
      if (own < plan.rows_at[now.row]) {
        x = static_cast<const bf16*>(call.activated) + std::int64_t{now.row + own} * inner;
      }
      turn.multiply(x, now.k + in_chunk, inner, sums);
      read(turn, next);
      if (next.row < valid) advance(next);
      const int row = now.row;
      advance(now);
      if (now.k != 0) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        parts[row][own][lane % 4 * 2 + i] = sums[i];
        parts[row][own + 8][lane % 4 * 2 + i] = sums[2 + i];
      }
#pragma unroll
      for (float& sum : sums) sum = 0.0F;
    }
  }
  __syncthreads();
  const int token = threadIdx.x / tile_columns, column = threadIdx.x % tile_columns;
  if (token >= call.tokens || begin + column >= hidden) return;
  float sum = 0.0F;
  bool first = true;
  for (int pair = token * call.top_k; pair < (token + 1) * call.top_k; ++pair) {
    const int row = plan.row_of_pair[pair];
    if (row < 0) continue;
    const int of_expert = plan.first_of[row];
    const float value = parts[of_expert][column][row - of_expert];
    sum = first ? value * plan.weights[pair] : fmaf(value, plan.weights[pair], sum);
    first = false;
  }
  store(out + std::int64_t{token} * hidden + begin + column, sum);
}

}  // namespace
}  // namespace cuda

using namespace cuda;

bool few_experts_fit(const FewExperts& call) {
  return TROUPE_HOPPER != 0 && call.tokens <= most_tokens &&
         call.tokens * call.top_k <= most_pairs && call.hidden % 8 == 0 && call.inner % 8 == 0;
}

cudaError_t run_few_experts(const FewExperts& call, cudaStream_t stream) {
  const dim3 gate_grid(blocks_of(call.inner, tile_columns / 2),
                       static_cast<unsigned>(call.tokens * call.top_k));
  const auto gate = call.hidden >= 8 * chunk * warps ? gate_few_rows<8> : gate_few_rows<4>;
  cudaError_t error = launch_early(gate, {gate_grid, threads}, stream, call);
  with_type(call.out_dtype, [&](auto* type) {
    using Out = element<decltype(type)>;
    if (error != cudaSuccess) return;
    error = launch_early(add_few_rows<Out>, {dim3(blocks_of(call.hidden, tile_columns)), threads},
                         stream, call, static_cast<Out*>(call.out));
  });
  return error;
}

}  // namespace troupe
