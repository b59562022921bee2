#include <algorithm>

#include <flashinfer/attention/mask.cuh>

#include "models/ops/cuda/attention/flashinfer_hopper.hpp"
// Behind mask.cuh, which they use but do not include.
#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>

#include "models/ops/cuda/attention/coded_pages.hpp"
#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/cuda_error.hpp"
#include "models/ops/gpu_attention.hpp"

namespace troupe {
namespace {

using Element = cutlass::bfloat16_t;
using Parameters = flashinfer::SinglePrefillParams<Element, Element, Element>;

constexpr int head_dim = 128;
constexpr std::int64_t position_bytes = 2 * head_dim * sizeof(Element);  // a KV head's
constexpr std::size_t gathered_bytes = std::size_t{144} << 20;
/// Shorter ones do not fill the GPU alone, and share the other kernel's launch.
constexpr std::int32_t least_rows = 1024, least_positions = 2048;

/// The positions that a span's rows see, from the begin of a page on.
struct SeenPositions {
  std::int64_t first_page, pages, positions;
};

SeenPositions seen_by(const SequenceSpan& span, const AttentionShape& shape, std::int64_t page) {
  const std::int64_t end = std::int64_t{span.first_position} + span.rows;
  const std::int64_t oldest =
      shape.window == 0 ? 0 : std::max<std::int64_t>(span.first_position - shape.window + 1, 0);
  const std::int64_t first_page = oldest / page;
  return {first_page, (end + page - 1) / page - first_page, end - first_page * page};
}

/// A cache of pages [blocks, kv_heads, page_units], each of some positions of a head.
struct Pages {
  const uint4* keys;
  const uint4* values;
  const std::int32_t* table;  ///< from the first page on
  int kv_heads, page_units;
};

/// A block copies a page of a KV head. rows: [2][gridDim.y heads][gridDim.x pages][page_units].
__global__ void gather_pages(Pages pages, int first_head, uint4* rows) {
  const std::int64_t head = blockIdx.y, page = blockIdx.x;
  const std::int64_t from =
      (std::int64_t{pages.table[page]} * pages.kv_heads + first_head + head) * pages.page_units;
  const std::int64_t to = (head * gridDim.x + page) * pages.page_units;
  const std::int64_t values = std::int64_t{gridDim.y} * gridDim.x * pages.page_units;
  for (int i = static_cast<int>(threadIdx.x); i < pages.page_units;
       i += static_cast<int>(blockDim.x)) {
    rows[to + i] = pages.keys[from + i];
    rows[values + to + i] = pages.values[from + i];
  }
}

/// A block for each tile of query rows of a head. The last rows see the most positions, so their
/// tiles come first, and the last blocks to end are short ones.
struct LongestTilesFirst : flashinfer::SingleTileScheduler {
  CUTLASS_DEVICE WorkTileInfo get_initial_work(const Params& parameters) const {
    const int head = static_cast<int>(blockIdx.y);
    return {static_cast<int>(gridDim.x - 1 - blockIdx.x), head,
            parameters.group_size_fastdiv.divide(head), true};
  }
};

/// Launches the kernel with a window; a shape without one gets a window as long as its context.
cudaError_t launch(const Parameters& parameters, cudaStream_t stream) {
  constexpr int tile_rows = 128, tile_positions = 128, stages = 2;
  constexpr bool has_window = true, is_causal = true;
  using Traits =
      flashinfer::AttentionKernelTraits<true, head_dim, head_dim, tile_rows, tile_positions, stages,
                                        Element, Element, Element, std::int32_t,
                                        flashinfer::StandardAttention>;
  using Mainloop = flashinfer::CollectiveMainloop<Parameters::AdditionalParams, Traits, is_causal>;
  using Epilogue = flashinfer::CollectiveEpilogue<Traits>;
  const auto rows_of = [](int rows, int heads, std::int64_t row_stride, std::int64_t head_stride) {
    return flashinfer::get_gmem_layout(rows, heads, head_dim, row_stride, head_stride);
  };
  const auto mainloop =
      Mainloop::to_underlying_arguments({parameters.q_ptr,
                                         rows_of(parameters.qo_len, parameters.num_qo_heads,
                                                 parameters.q_stride_n, parameters.q_stride_h),
                                         parameters.k_ptr,
                                         rows_of(parameters.kv_len, parameters.num_kv_heads,
                                                 parameters.k_stride_n, parameters.k_stride_h),
                                         parameters.v_ptr,
                                         rows_of(parameters.kv_len, parameters.num_kv_heads,
                                                 parameters.v_stride_n, parameters.v_stride_h),
                                         parameters.window_left, parameters.additional_params});
  const auto epilogue = Epilogue::to_underlying_arguments(
      {parameters.o_ptr,
       rows_of(parameters.qo_len, parameters.num_qo_heads, parameters.o_stride_n,
               parameters.o_stride_h),
       nullptr, flashinfer::get_lse_gmem_layout(parameters.qo_len, parameters.num_qo_heads)});
  const LongestTilesFirst::Arguments tiles{
      (parameters.qo_len + tile_rows - 1) / tile_rows, parameters.num_qo_heads, parameters.qo_len,
      parameters.kv_len, cutlass::FastDivmod(parameters.group_size)};
  const auto scheduler = LongestTilesFirst::to_underlying_arguments(tiles);

  const auto kernel = flashinfer::PrefillWithKVCacheKernel<Mainloop, Epilogue, Traits, has_window,
                                                           is_causal, LongestTilesFirst>;
  constexpr int shared_bytes = sizeof(typename Traits::SharedStorage);
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
      error != cudaSuccess) {
    return error;
  }
  constexpr int warp = 32;
  kernel<<<LongestTilesFirst::get_grid_dim(tiles, 0), Traits::NUM_WARPS * warp, shared_bytes,
           stream>>>(mainloop, epilogue, scheduler);
  return cudaGetLastError();
}

}  // namespace

bool FlashInferHopper::takes(const AttentionShape& shape, const SequenceSpan& span) {
  constexpr std::int64_t most_positions = gathered_bytes / position_bytes;
  return std::int64_t{span.first_position} + span.rows <= most_positions - least_rows &&
         flashinfer_hopper_takes(shape) && hopper_kernels_run();
}

bool FlashInferHopper::suits(const AttentionShape& shape, const SequenceSpan& span) {
  return span.rows >= least_rows &&
         std::int64_t{span.first_position} + span.rows >= least_positions && takes(shape, span);
}

Result<void> FlashInferHopper::reserve() {
  TROUPE_TRY(gathered_, DeviceBuffer::allocate(gathered_bytes, "memory for long prompts"));
  return {};
}

cudaError_t FlashInferHopper::gather(const KvLayer& cache, const AttentionShape& shape,
                                     const AttentionBatch& batch, const std::int32_t* table,
                                     std::int64_t page_count, Slice heads,
                                     cudaStream_t stream) const {
  const int first_head = static_cast<int>(heads.begin);
  if (is_code(cache.keys.dtype())) {
    const CodedSource source{.cache = cache,
                             .table = table,
                             .kv_heads = shape.kv_heads,
                             .head_dim = head_dim,
                             .block_size = batch.block_size};
    const std::int64_t elements = heads.count * page_count * batch.block_size * head_dim;
    auto* const keys = gathered_.as<__nv_bfloat16>();
    return widen_pages(source, {.pages = page_count, .heads = heads, .by_head = true}, keys,
                       keys + elements, stream);
  }
  const Pages pages{
      static_cast<const uint4*>(cache.keys.data()), static_cast<const uint4*>(cache.values.data()),
      table, static_cast<int>(shape.kv_heads),
      static_cast<int>(batch.block_size * head_dim * sizeof(Element) / sizeof(uint4))};
  constexpr int threads = 256;
  gather_pages<<<dim3(static_cast<unsigned>(page_count), static_cast<unsigned>(heads.count)),
                 threads, 0, stream>>>(pages, first_head, gathered_.as<uint4>());
  return cudaGetLastError();
}

Result<void> FlashInferHopper::attend(const Tensor& q, const AttentionShape& shape,
                                      const AttentionBatch& batch, const SequenceSpan& span,
                                      const KvLayer& cache, const Tensor& out,
                                      cudaStream_t stream) {
  const SeenPositions seen = seen_by(span, shape, batch.block_size);
  const std::int64_t row_count = seen.pages * batch.block_size;
  const std::int64_t group = shape.heads / shape.kv_heads, row = shape.heads * head_dim;
  const auto fitting = static_cast<std::int64_t>(gathered_bytes) / (row_count * position_bytes);
  const std::int64_t turns = (shape.kv_heads + fitting - 1) / fitting;
  const std::int64_t heads_at_a_time = (shape.kv_heads + turns - 1) / turns;
  const std::int32_t* const table =
      batch.block_tables.as<std::int32_t>() + span.block_offset + seen.first_page;
  for (std::int64_t head = 0; head < shape.kv_heads; head += heads_at_a_time) {
    const std::int64_t heads = std::min(heads_at_a_time, shape.kv_heads - head);
    TROUPE_CHECK(cuda_done(gather(cache, shape, batch, table, seen.pages, {head, heads}, stream),
                           "the gathering of keys and values"));
    const std::int64_t first = span.first_row * row + head * group * head_dim;
    const std::int64_t head_rows = row_count * head_dim;
    Element* const keys = gathered_.as<Element>();
    const Parameters parameters{
        .q_ptr = static_cast<Element*>(q.data()) + first,
        .k_ptr = keys,
        .v_ptr = keys + heads * head_rows,
        .o_ptr = static_cast<Element*>(out.data()) + first,
        .lse_ptr = nullptr,
        .additional_params = {.logits_soft_cap = 0.0F,
                              .sm_scale = shape.scale,
                              .scale_q = nullptr,
                              .scale_k = nullptr,
                              .scale_v = nullptr},
        .q_stride_n = row,
        .k_stride_n = head_dim,
        .v_stride_n = head_dim,
        .o_stride_n = row,
        .q_stride_h = head_dim,
        .k_stride_h = head_rows,
        .v_stride_h = head_rows,
        .o_stride_h = head_dim,
        .qo_len = span.rows,
        .kv_len = static_cast<int>(seen.positions),
        .num_qo_heads = static_cast<int>(heads * group),
        .num_kv_heads = static_cast<int>(heads),
        .group_size = static_cast<int>(group),
        .window_left = static_cast<int>(shape.window > 0 ? shape.window : seen.positions) - 1,
        .causal = true};
    TROUPE_CHECK(cuda_done(launch(parameters, stream), "the launch of attention of a long prompt"));
  }
  return {};
}

}  // namespace troupe
