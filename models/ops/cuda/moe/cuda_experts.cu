// Experts' GEMMs: on tensor cores where those support them (grouped_gemm.hpp).
#include <algorithm>
#include <cassert>

#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/cuda_linear.hpp"
#include "models/ops/cuda/gemm/quantize_rows.hpp"
#include "models/ops/cuda/gemm/skinny_gemm.hpp"
#include "models/ops/cuda/moe/coded_grouped_gemm.hpp"
#include "models/ops/cuda/moe/cuda_moe_ops.hpp"
#include "models/ops/cuda/moe/grouped_gemm.hpp"
#include "models/ops/cuda/moe/small_batch_moe.hpp"
#include "models/ops/unfused_moe.hpp"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int tile = 64;  // rows and columns of a block's part of the GEMM
constexpr int tile_k = 16;
constexpr int gemm_threads = 256;  // 4 x 4 elements each

/// Where the rows of a grouped GEMM are.
struct Rows {
  const GroupedGemm& gemm;

  /// The first row of an expert, counted through all.
  __device__ std::int64_t first_of(int expert) const {
    return gemm.heads.rows > 0 ? expert * gemm.heads.rows : gemm.offsets[expert];
  }
  /// The offsets of a row of x and of out.
  __device__ std::int64_t x(int expert, std::int64_t row) const {
    const HeadRows& heads = gemm.heads;
    if (heads.rows > 0) return (row - expert * heads.rows) * heads.x_stride + expert * gemm.k;
    return (gemm.gather ? gemm.source[row] / gemm.top_k : row) * gemm.k;
  }
  __device__ std::int64_t out(int expert, std::int64_t row) const {
    const HeadRows& heads = gemm.heads;
    if (heads.rows > 0) {
      return (row - expert * heads.rows) * heads.out_stride + expert * heads.out_width;
    }
    return (gemm.scatter ? gemm.source[row] : row) * gemm.n;
  }
};

/// GEMMs that tensor cores do not support: f32, or sizes that are not multiples of 8. Grid: row
/// tiles, ceil(rows / tile) per expert and counted through all experts, then column tiles; blocks
/// beyond the last row tile have no work.
template <class T, class Out>
__global__ void multiply_grouped(const __grid_constant__ GroupedGemm gemm) {
  __shared__ float left[tile_k][tile + 4], right[tile_k][tile + 4];
  const Rows rows{gemm};
  int expert = 0;
  std::int64_t row_tile = blockIdx.x;
  for (; expert < gemm.experts; ++expert) {
    const std::int64_t tiles =
        (rows.first_of(expert + 1) - rows.first_of(expert) + tile - 1) / tile;
    if (row_tile < tiles) break;
    row_tile -= tiles;
  }
  if (expert == gemm.experts) return;
  const std::int64_t row_begin = rows.first_of(expert) + row_tile * tile;
  const std::int64_t row_end = rows.first_of(expert + 1);
  const std::int64_t column_begin = std::int64_t{blockIdx.y} * tile;
  const T* const weight = static_cast<const T*>(gemm.weights) + expert * gemm.n * gemm.k;
  const T* const x = static_cast<const T*>(gemm.x);
  const int thread = threadIdx.x, own_row = thread / 16 * 4, own_column = thread % 16 * 4;
  float sums[4][4] = {};
  for (std::int64_t k = 0; k < gemm.k; k += tile_k) {
    for (int i = thread; i < tile * tile_k; i += gemm_threads) {
      const std::int64_t in_k = k + i % tile_k;
      const std::int64_t row = row_begin + i / tile_k, column = column_begin + i / tile_k;
      float a = 0.0F, b = 0.0F;
      if (row < row_end && in_k < gemm.k) a = load(x + rows.x(expert, row) + in_k);
      if (column < gemm.n && in_k < gemm.k) b = load(weight + column * gemm.k + in_k);
      left[i % tile_k][i / tile_k] = a;
      right[i % tile_k][i / tile_k] = b;
    }
    __syncthreads();
#pragma unroll
    for (int in_k = 0; in_k < tile_k; ++in_k) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          sums[r][c] = fmaf(left[in_k][own_row + r], right[in_k][own_column + c], sums[r][c]);
        }
      }
    }
    __syncthreads();
  }
  for (int r = 0; r < 4; ++r) {
    const std::int64_t row = row_begin + own_row + r;
    if (row >= row_end) return;
    Out* const to = static_cast<Out*>(gemm.out) + rows.out(expert, row);
    for (int c = 0; c < 4; ++c) {
      const std::int64_t column = column_begin + own_column + c;
      if (column < gemm.n) store(to + column, sums[r][c]);
    }
  }
}

void launch_simt_grouped_gemm(const GroupedGemm& gemm, DType x_dtype, std::int64_t rows,
                              cudaStream_t stream) {
  const std::int64_t max_tiles = rows / tile + std::min<std::int64_t>(gemm.experts, rows);
  const dim3 grid(static_cast<unsigned>(max_tiles), blocks_of(gemm.n, tile));
  with_type(x_dtype, [&](auto* type) {
    with_type(gemm.out_dtype, [&](auto* to) {
      using T = element<decltype(type)>;
      using Out = element<decltype(to)>;
      multiply_grouped<T, Out><<<grid, gemm_threads, 0, stream>>>(gemm);
    });
  });
}

GroupedGemm grouped_gemm_of(const CudaGroupedLinear& grouped, const Tensor& x,
                            const ExpertBatch& batch, std::int64_t top_k, const Tensor& out) {
  return {.weights = grouped.weights().data(),
          .x = x.data(),
          .out = out.data(),
          .out_dtype = out.dtype(),
          .offsets = batch.offsets.as<std::int32_t>(),
          .source = batch.source.as<std::int32_t>(),
          .assignments = batch.expected_rows > 0 ? batch.expected_rows : batch.source.elements(),
          .experts = grouped.experts(),
          .n = grouped.out_features(),
          .k = grouped.in_features(),
          .top_k = top_k};
}

/// Of experts in panels of codes.
CodedGroupedGemm coded_gemm_of(const CudaGroupedLinear& grouped, const Tensor& x,
                               const ExpertBatch& batch, std::int64_t top_k, const Tensor& out) {
  return {.layout = *grouped.panels(),
          .panels = grouped.weights().data(),
          .row_scales = grouped.row_scales(),
          .x = x.data(),
          .out = out.data(),
          .out_dtype = out.dtype(),
          .offsets = batch.offsets.as<std::int32_t>(),
          .source = batch.source.as<std::int32_t>(),
          .assignments = batch.expected_rows > 0 ? batch.expected_rows : batch.source.elements(),
          .experts = grouped.experts(),
          .top_k = top_k};
}

}  // namespace
}  // namespace cuda

using namespace cuda;

void CudaMoeOps::do_grouped_linear(const GroupedLinear& weights, const Tensor& x,
                                   const ExpertBatch& batch, std::int64_t top_k, bool gather,
                                   bool scatter, const Tensor& out) {
  if (batch.source.empty()) return;
  const auto& grouped = static_cast<const CudaGroupedLinear&>(weights);
  if (grouped.panels() != nullptr) {
    CodedGroupedGemm coded = coded_gemm_of(grouped, x, batch, top_k, out);
    coded.gather = gather;
    coded.scatter = scatter;
    check(launch_coded_grouped_gemm(coded, stream()), "a grouped GEMM of codes");
    return;
  }
  GroupedGemm gemm = grouped_gemm_of(grouped, x, batch, top_k, out);
  gemm.gather = gather;
  gemm.scatter = scatter;
  if (quantize(grouped, x, batch, gemm)) run(gemm, x.dtype(), batch.source.elements());
}

std::optional<CodedRows> CudaMoeOps::room_for_codes(std::int64_t rows, std::int64_t k) {
  constexpr std::int64_t min_bytes = 64 << 20, min_rows = 128 << 10;
  const auto grow = [&](DeviceTensor& memory, DType dtype, std::int64_t needed,
                        std::int64_t least) {
    const std::int64_t held = memory->empty() ? 0 : memory->elements();
    if (needed <= held) return true;
    auto more = context_.allocate_unset(dtype, {std::max({needed, 2 * held, least})});
    if (!more.ok()) {
      check(more.error());
      return false;
    }
    if (held > 0) outgrown_.push_back(std::move(memory));
    memory = *std::move(more);
    return true;
  };
  if (!grow(codes_, DType::u8, rows * k, min_bytes) ||
      !grow(code_scales_, DType::f32, rows, min_rows)) {
    return std::nullopt;
  }
  return CodedRows{codes_->as<std::uint8_t>(), code_scales_->as<float>(), dense_.peak()};
}

std::optional<CodedRows> CudaMoeOps::token_codes(const Tensor& tokens) {
  const bool are_routed = routed_codes_ && routed_at_ == context_.uses() &&
                          routed_.data() == tokens.data() && routed_.shape() == tokens.shape();
  if (are_routed) return routed_codes_;
  if (const auto made = dense_.codes_of(tokens)) return made;
  const auto room = room_for_codes(tokens[0], tokens[1]);
  if (!room) return std::nullopt;
  check(launch_quantize_rows(tokens.data(), tokens[0], tokens[1], *room, stream()),
        "quantising tokens");
  return room;
}

bool CudaMoeOps::multiplies_codes() const { return hopper_kernels_run(); }

bool CudaMoeOps::do_takes_codes(const GroupedLinear& gate_up) const {
  const auto& grouped = static_cast<const CudaGroupedLinear&>(gate_up);
  return grouped.scales() != nullptr && grouped_gemm_fits({.experts = grouped.experts(),
                                                           .n = grouped.out_features(),
                                                           .k = grouped.in_features(),
                                                           .gated = true,
                                                           .weight_scales = grouped.scales()});
}

CodedTokens CudaMoeOps::do_codes_of(const Tensor& x) {
  const auto made = x.empty() ? std::nullopt : token_codes(x);
  if (!made) return {Tensor(nullptr, DType::u8, {0, x[1]}), Tensor(nullptr, DType::f32, {0})};
  return {Tensor(made->codes, DType::u8, x.shape()), Tensor(made->scales, DType::f32, {x[0]})};
}

bool CudaMoeOps::quantize(const CudaGroupedLinear& grouped, const Tensor& x,
                          const ExpertBatch& batch, GroupedGemm& gemm) {
  if (grouped.scales() == nullptr) return true;
  gemm.weight_scales = grouped.scales();
  if (gemm.gather && !batch.scales.empty()) {
    gemm.x_scales = batch.scales.as<float>();
    return true;
  }
  std::optional<CodedRows> codes;
  if (gemm.gather) {
    codes = token_codes(x);
  } else if ((codes = room_for_codes(x[0], gemm.k))) {
    check(launch_quantize_counted_rows(x.data(), gemm.offsets + gemm.experts, x[0], gemm.k, *codes,
                                       stream()),
          "quantising experts' rows");
  }
  if (!codes) return false;
  gemm.x = codes->codes;
  gemm.x_scales = codes->scales;
  return true;
}

void CudaMoeOps::do_heads_linear(const GroupedLinear& weights, const Columns& x,
                                 const Tensor& out) {
  if (out.empty()) return;
  const auto& grouped = static_cast<const CudaGroupedLinear&>(weights);
  const std::int64_t heads = grouped.experts(), rows = out[0];
  const HeadRows of_heads{
      .rows = rows, .x_stride = x.stride(), .out_stride = out[1], .out_width = out[1] / heads};
  const SkinnyGemm few{.weight = grouped.weights().data(),
                       .x = x.data(),
                       .out = out.data(),
                       .out_dtype = out.dtype(),
                       .rows = rows,
                       .n = grouped.out_features(),
                       .k = grouped.in_features(),
                       .heads = of_heads,
                       .matrices = heads};
  // With a short k most of its warps would idle.
  constexpr std::int64_t min_skinny_k = 256;
  if (!deterministic_ && x.dtype() == DType::bf16 && few.k >= min_skinny_k &&
      skinny_gemm_fits(few)) {
    check(launch_skinny_gemm(few, stream()), "heads_linear");
    return;
  }
  run({.weights = few.weight,
       .x = few.x,
       .out = few.out,
       .out_dtype = few.out_dtype,
       .assignments = heads * rows,
       .experts = heads,
       .n = few.n,
       .k = few.k,
       .heads = of_heads},
      x.dtype(), heads * rows);
}

/// Enqueues a GEMM of `rows` rows in all.
void CudaMoeOps::run(const GroupedGemm& gemm, DType x_dtype, std::int64_t rows) {
  if ((x_dtype == DType::bf16 || gemm.is_coded()) && grouped_gemm_fits(gemm)) {
    check(launch_grouped_gemm(gemm, stream()), "a grouped GEMM");
    return;
  }
  launch_simt_grouped_gemm(gemm, x_dtype, rows, stream());
  check_launch("a grouped GEMM");
}

void CudaMoeOps::do_grouped_gate_up(const GroupedLinear& weights, const Tensor& x,
                                    const ExpertBatch& batch, std::int64_t top_k,
                                    const Tensor& scratch, const Tensor& out) {
  if (batch.source.empty()) return;
  const auto& grouped = static_cast<const CudaGroupedLinear&>(weights);
  if (grouped.panels() != nullptr && out.dtype() == DType::bf16) {
    CodedGroupedGemm coded = coded_gemm_of(grouped, x, batch, top_k, out);
    coded.gather = true;
    coded.gated = true;
    check(launch_coded_grouped_gemm(coded, stream()), "grouped_gate_up of codes");
    return;
  }
  if (grouped.panels() != nullptr) {
    return unfused_grouped_gate_up(*this, dense_, weights, x, batch, top_k, scratch, out);
  }
  GroupedGemm gemm = grouped_gemm_of(grouped, x, batch, top_k, out);
  gemm.gather = true;
  gemm.gated = true;
  const bool takes_x = x.dtype() == DType::bf16 || !batch.scales.empty();
  if (takes_x && out.dtype() == DType::bf16 && grouped_gemm_fits(gemm)) {
    if (!quantize(grouped, x, batch, gemm)) return;
    check(launch_grouped_gemm(gemm, stream()), "grouped_gate_up");
    return;
  }
  unfused_grouped_gate_up(*this, dense_, weights, x, batch, top_k, scratch, out);
}

bool CudaMoeOps::do_grouped_activate(const GroupedLinear& weights, const Tensor& x,
                                     const ExpertBatch& batch, std::int64_t top_k,
                                     const Tensor& bias, Activation activation, const Tensor& out) {
  const auto& grouped = static_cast<const CudaGroupedLinear&>(weights);
  const bool is_clamped = activation == Activation::clamped_gated;
  if (grouped.panels() == nullptr || out.dtype() != DType::bf16 ||
      (!is_clamped && activation != Activation::silu_gated)) {
    return false;
  }
  if (batch.source.empty()) return true;
  CodedGroupedGemm coded = coded_gemm_of(grouped, x, batch, top_k, out);
  coded.gather = true;
  coded.gated = true;
  coded.clamped = is_clamped;
  if (!bias.empty()) coded.bias = bias.as<float>();
  check(launch_coded_grouped_gemm(coded, stream()), "grouped_activate of codes");
  return true;
}

void CudaMoeOps::do_expert_mlp(const GroupedLinear& gate_up, const GroupedLinear& down,
                               const Tensor& x, const ExpertChoices& choices,
                               const ExpertBatch& batch, const ExpertScratch& scratch,
                               const Tensor& out, const SharedMlp& shared) {
  if (x.empty()) return;
  const auto& of_gates = static_cast<const CudaGroupedLinear&>(gate_up);
  const auto& of_down = static_cast<const CudaGroupedLinear&>(down);
  if (of_gates.panels() != nullptr || of_down.panels() != nullptr) {
    assert(shared.down == nullptr);  // adds_shared_mlp
    return unfused_expert_mlp(*this, gate_up, down, x, choices, batch, scratch, out);
  }
  const bool is_coded = of_down.scales() != nullptr;
  SmallBatchMoe few{.gate_up = of_gates.weights().data(),
                    .down = of_down.weights().data(),
                    .x = x.data(),
                    .activated = scratch.activated.data(),
                    .out = out.data(),
                    .out_dtype = out.dtype(),
                    .ids = choices.ids.as<std::int32_t>(),
                    .weights = choices.weights.as<float>(),
                    .offsets = batch.offsets.as<std::int32_t>(),
                    .source = batch.source.as<std::int32_t>(),
                    .first_expert = choices.first_expert,
                    .tokens = x[0],
                    .top_k = choices.ids[1],
                    .experts = down.experts(),
                    .hidden = down.out_features(),
                    .inner = down.in_features(),
                    .gate_up_scales = of_gates.scales(),
                    .down_scales = of_down.scales()};
  if (shared.down != nullptr) {
    few.shared_inner = shared.down->in_features();
    few.shared_activated = scratch.shared.data();
    const auto* const shared_gates = static_cast<const CudaLinear*>(shared.gate_up);
    const auto* const shared_down = static_cast<const CudaLinear*>(shared.down);
    if (is_coded) {
      few.shared_gate_up = shared_gates->codes()->codes->data();
      few.shared_gate_up_scales = shared_gates->codes()->scales->as<float>();
      few.shared_down = shared_down->codes()->codes->data();
      few.shared_down_scales = shared_down->codes()->scales->as<float>();
    } else {
      few.shared_gate_up = shared_gates->plain()->data();
      few.shared_down = shared_down->plain()->data();
    }
  }
  const bool are_alike = few.is_coded() == is_coded;
  if (!deterministic_ && x.dtype() == DType::bf16 && are_alike && small_batch_moe_fits(few)) {
    check(launch_small_batch_moe(few, stream()), "expert_mlp");
    return;
  }
  assert(shared.down == nullptr);  // adds_shared_mlp
  unfused_expert_mlp(*this, gate_up, down, x, choices, batch, scratch, out);
}

bool CudaMoeOps::do_adds_shared_mlp(const SharedMlp& shared, const GroupedLinear& down,
                                    std::int64_t tokens, std::int64_t top_k) const {
  const auto& gates_matrix = *static_cast<const CudaLinear*>(shared.gate_up);
  const auto& down_matrix = *static_cast<const CudaLinear*>(shared.down);
  const auto& experts = static_cast<const CudaGroupedLinear&>(down);
  const float* const scales = experts.scales();
  const bool are_alike = scales != nullptr
                             ? gates_matrix.codes() != nullptr && down_matrix.codes() != nullptr
                             : gates_matrix.plain() != nullptr && down_matrix.plain() != nullptr &&
                                   dtype_ == DType::bf16;
  // Experts whose rows are in codes have gates that are, too.
  return !deterministic_ && are_alike && experts.panels() == nullptr &&
         small_batch_moe_fits({.tokens = tokens,
                               .top_k = top_k,
                               .experts = down.experts(),
                               .hidden = down.out_features(),
                               .inner = down.in_features(),
                               .shared_inner = shared.down->in_features(),
                               .gate_up_scales = scales});
}

}  // namespace troupe
