#pragma once

#include <cstdint>

#include "models/ops/coded_matrix.hpp"
#include "models/ops/cpu/cpu_ops.hpp"

namespace troupe {

// Kernels run on one thread each and do not synchronise; cpu_ops.cpp splits the work. Each is
// written once (gemm_kernels.hpp, attention_kernels.hpp, row_kernels.hpp) and compiled per
// instruction set in the files <what>_avx2.cpp and <what>_avx512.cpp; `kernels_for` chooses.

/// Columns (out features) of one packed panel.
inline constexpr std::int64_t panel_columns = 32;

/// The panels of a matrix that is held as codes (coded_matrix.hpp). A panel has its runs one after
/// the other: bytes as [columns of the run][32]; 4-bit codes as [blocks of 8 columns of the
/// run][32], a word for each, the first column's code lowest. E4M3 codes count as 2^-8 of their
/// numbers, which is what their bits are in f16; their scales make up for it. With `rounds_rows` a
/// run's bytes are [its columns / 4][32][4], padded, each 128 more than the code.
struct CodePanels {
  CodeKind kind = CodeKind::int8;
  const CodeRun* runs = nullptr;  ///< null: the matrix is not held as codes
  std::int64_t run_count = 0;
  std::int64_t panel_bytes = 0;       ///< of codes
  DType scale_dtype = DType::f32;     ///< f32 or bf16
  const void* scales = nullptr;       ///< [panels][runs][32]
  const void* zero_points = nullptr;  ///< the same in bf16, of codes as numbers; null: all 0
  bool rounds_rows = false;           ///< int8; activations are rounded, too
};

/// Multiplies rows [row_begin, row_end) by panels [panel_begin, panel_end) of a packed matrix [n,
/// k]. A panel holds 32 columns as [k][32], zero-padded: f32 in order; bf16 with columns c and c +
/// 16 adjacent, so that one load and two integer operations give both halves.
struct GemmJob {
  const void* panels = nullptr;
  DType dtype = DType::f32;  ///< of numbers
  CodePanels codes;
  std::int64_t n = 0;
  std::int64_t k = 0;
  int segments = 1;  ///< equal parts of k, each one chain of FMAs, added as a binary tree
  std::int64_t panel_begin = 0, panel_end = 0;
  /// Row i is x + (gather ? gather[i] / gather_divisor : i) * x_stride.
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  const std::int32_t* gather = nullptr;
  std::int64_t gather_divisor = 1;
  float* out = nullptr;  ///< row i goes to out + (scatter ? scatter[i] : i) * out_stride
  std::int64_t out_stride = 0;
  const std::int32_t* scatter = nullptr;
  std::int64_t row_begin = 0, row_end = 0;
  float* scratch = nullptr;  ///< gemm_scratch_floats(k, segments) floats, 64-byte aligned
  /// With codes.rounds_rows: raised to the largest magnitude of the rows, infinity if one is not
  /// finite; other threads raise it, too. May be null.
  float* peak = nullptr;
};
/// Of numbers and of codes.
std::int64_t gemm_scratch_floats(std::int64_t k, int segments);

/// Attention of some heads of one sequence: `rows` query rows from `q`, at positions
/// first_position... Keys are [blocks, kv_heads, head_dim, block_size], values [blocks, kv_heads,
/// block_size, head_dim], with the scales of codes behind each page (KvRowLayout); with
/// shape.latent there are only keys.
struct AttentionJob {
  const float* q = nullptr;  ///< row 0, head 0
  float* out = nullptr;      ///< as q
  std::int64_t rows = 0;     ///< rows * heads <= attention_tile_rows
  std::int64_t first_position = 0;
  const void* keys = nullptr;
  const void* values = nullptr;
  KvRowLayout layout;                    ///< of keys
  KvRowLayout value_layout;              ///< of values
  const std::int32_t* blocks = nullptr;  ///< the sequence's block table
  std::int64_t block_size = 16;
  std::int64_t first_head = 0;  ///< query heads [first_head, first_head + heads)
  std::int64_t heads = 1;       ///< all read the same KV head
  AttentionShape shape;
  const float* sinks = nullptr;  ///< shape.sinks, or null
  float* scratch = nullptr;      ///< attention_scratch_floats(head_dim) floats, 64-byte aligned
  const AttentionJob* following = nullptr;  ///< this thread's next job, if known: to prefetch
};

/// As AttentionOps::accumulate_weights, for one sequence and KV head: `attention` has the observed
/// rows, in whatever number, and the query heads that read the KV head. Its scratch is that of
/// attention; `out` is not used.
struct AttentionWeightsJob {
  AttentionJob attention;
  float* weights = nullptr;  ///< [blocks, kv_heads, block_size]
};

/// The scores of one row by SparseIndex.
struct IndexScoresJob {
  const float* query = nullptr;    ///< [heads, dim]
  const float* weights = nullptr;  ///< [heads]
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  const void* keys = nullptr;  ///< [blocks, 1, dim, block_size]
  DType dtype = DType::f32;
  const std::int32_t* blocks = nullptr;  ///< the sequence's block table
  std::int64_t block_size = 16;
  std::int64_t keys_seen = 0;
  float* scores = nullptr;  ///< [keys_seen]
};
inline constexpr std::int64_t attention_tile_rows = 64;  ///< pairs of query row and head
inline constexpr std::int64_t attention_chunk = 64;  ///< positions per step of the online softmax
constexpr std::int64_t attention_scratch_floats(std::int64_t head_dim) {
  return attention_tile_rows * (2 * head_dim + attention_chunk + 16 + 2) +
         attention_chunk * head_dim;
}

/// As AttentionOps::norm_rope_store, for tokens [begin, end).
struct NormRopeStoreJob {
  const float* qkv = nullptr;
  const float* q_norm = nullptr;  ///< null: no norm
  const float* k_norm = nullptr;
  float eps = 0.0F;
  const float* rope = nullptr;
  AttentionShape shape;
  const std::int32_t* positions = nullptr;
  const std::int32_t* kv_slots = nullptr;
  std::int64_t block_size = 16;
  void* keys = nullptr;
  void* values = nullptr;
  KvRowLayout layout;        ///< of keys
  KvRowLayout value_layout;  ///< of values
  float* q_out = nullptr;
  float* scratch = nullptr;  ///< head_dim floats
  std::int64_t begin = 0, end = 0;
};

/// As AttentionOps::latent_rope_store, for tokens [begin, end).
struct LatentRopeStoreJob {
  const float* rotated_q = nullptr;
  std::int64_t q_stride = 0;  ///< from token to token
  const float* kv = nullptr;
  std::int64_t kv_stride = 0;
  const float* norm = nullptr;
  float eps = 0.0F;
  const float* rope = nullptr;
  AttentionShape shape;
  const std::int32_t* positions = nullptr;
  const std::int32_t* kv_slots = nullptr;
  std::int64_t block_size = 16;
  void* keys = nullptr;
  KvRowLayout layout;
  float* q_out = nullptr;
  float* scratch = nullptr;  ///< head_dim floats
  std::int64_t begin = 0, end = 0;
};

/// The elements of a cached key from `begin` on, which have one scale.
struct KeyPartJob {
  KvRowLayout layout;
  void* page = nullptr;  ///< of the KV head
  std::int64_t offset = 0, block_size = 16;
  std::int64_t begin = 0;     ///< 0, or layout.first_part
  float* elements = nullptr;  ///< [head_dim - begin]
};

/// Operations on single rows, with the names and definitions of those in Ops.
struct RowKernels {
  void (*rms_norm)(const float* x, const float* weight, float eps, std::int64_t rows,
                   std::int64_t width, float* out);
  void (*add_rms_norm)(float* residual, const float* x, const float* weight, float eps,
                       std::int64_t rows, std::int64_t width, float* out);
  void (*silu_mul)(const float* gate_up, std::int64_t rows, std::int64_t inner, float* out);
  void (*add_bias)(float* x, const float* bias, std::int64_t rows, std::int64_t width);
  /// `bias` may be null; scratch holds route_scratch_floats(experts).
  void (*route)(const float* logits, const float* bias, std::int64_t tokens, std::int64_t experts,
                const RouterOptions& options, std::int32_t* ids, float* weights, float* scratch);
  void (*combine)(const float* x, const float* weights, std::int64_t tokens, std::int64_t top_k,
                  std::int64_t width, float* out);
  void (*widen_row)(const void* row, DType dtype, std::int64_t width, float* out);
  void (*norm_rope_store)(const NormRopeStoreJob& job);
  void (*latent_rope_store)(const LatentRopeStoreJob& job);
  /// Not for silu_gated and gelu.
  void (*activate)(const float* x, Activation activation, std::int64_t rows, std::int64_t inner,
                   float* out);
  /// `bias` may be null.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps,
                     std::int64_t rows, std::int64_t width, float* out);
  void (*scale)(float* x, float factor, float soft_cap, std::int64_t count);
  /// Reads them as numbers.
  void (*load_key)(const KeyPartJob& job);
  /// Rounds them to what the cache holds, codes with the scale of their largest magnitude.
  void (*store_key)(const KeyPartJob& job);
  float (*dot)(const float* x, const float* y, std::int64_t width);
  /// out = x * factor * weight, which may be x.
  void (*scale_row)(const float* x, float factor, const float* weight, std::int64_t width,
                    float* out);
};
/// Floats for scores, choice values, and groups.
constexpr std::int64_t route_scratch_floats(std::int64_t experts) { return 3 * experts; }

struct Kernels {
  void (*gemm)(const GemmJob& job);
  void (*gemm_of_codes)(const GemmJob& job);  ///< of a job with codes.runs
  void (*gemm_of_int8)(const GemmJob& job);   ///< of one with codes.rounds_rows

  /// The one of a job.
  void multiply(const GemmJob& job) const {
    if (job.codes.runs == nullptr) return gemm(job);
    (job.codes.rounds_rows ? gemm_of_int8 : gemm_of_codes)(job);
  }
  void (*attention)(const AttentionJob& job);
  void (*attention_weights)(const AttentionWeightsJob& job);
  void (*index_scores)(const IndexScoresJob& job);
  RowKernels rows;
};

/// `isa` must be supported by this CPU and not `best`.
const Kernels& kernels_for(CpuIsa isa);

namespace avx2 {
void gemm(const GemmJob& job);
void gemm_of_codes(const GemmJob& job);
void gemm_of_int8(const GemmJob& job);
void attention(const AttentionJob& job);
void attention_weights(const AttentionWeightsJob& job);
void index_scores(const IndexScoresJob& job);
extern const RowKernels row_kernels;
}  // namespace avx2

namespace avx512 {
void gemm(const GemmJob& job);
void gemm_of_codes(const GemmJob& job);
void attention(const AttentionJob& job);
void attention_weights(const AttentionWeightsJob& job);
void index_scores(const IndexScoresJob& job);
extern const RowKernels row_kernels;
}  // namespace avx512

/// For CPUs that have these instructions beside AVX-512; the others take that of avx2.
namespace avx512vnni {
void gemm_of_int8(const GemmJob& job);
}  // namespace avx512vnni

}  // namespace troupe
