#pragma once

#include <span>

#include "models/config/activation.hpp"
#include "parallel/device/tensor.hpp"

namespace troupe {

class GroupedLinear;
class Linear;
struct AttentionBatch;
struct AttentionShape;
struct Columns;
struct ExpertBatch;
struct ExpertChoices;
struct ExpertScratch;
struct IndexQueries;
struct KvCompaction;
struct KvLayer;
struct ProjectionNorm;
struct RouterOptions;
struct SharedMlp;
struct SampledRow;
struct ScoredRow;

}  // namespace troupe

/// The public functions of the components of Ops check by these, in builds with assertions (presets
/// dev and tsan), that shapes and dtypes are as the headers say. A failed check is a bug of the
/// caller and ends the process, naming the operation, the tensor, what was expected and what was
/// found.
namespace troupe::op_checks {

#ifdef NDEBUG
inline constexpr bool enabled = false;
#else
inline constexpr bool enabled = true;
#endif

void copy(const Tensor& from, const Tensor& to);
void embed(const Tensor& table, const Tensor& ids, const Tensor& out);
void rms_norm(const Tensor& x, const Tensor& weight, const Tensor& out,
              const Linear* next = nullptr);
void add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, const Tensor& out,
                  const Linear* next = nullptr);
void add(const Tensor& residual, const Tensor& x);
void add_bias(const Tensor& x, const Tensor& bias);
void linear(const Linear& weight, const Tensor& x, const Tensor& out);
void linear_gate_up(const Linear& weight, const Tensor& x, const Tensor& scratch, const Tensor& out,
                    const Linear* next = nullptr);
void silu_mul(const Tensor& gate_up, const Tensor& out);
void activate(const Tensor& x, Activation activation, const Tensor& out);
void layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& out);
void gate_rows(const Tensor& x, const Tensor& input, const Tensor& weight);
void tree_sum(const Tensor& x, const Tensor& out);
void gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out);
void concat_columns(const Tensor& parts, const Tensor& out);
void norm_rope_store(const Tensor& qkv, const Tensor& q_norm, const Tensor& k_norm,
                     const Tensor& rope, const AttentionShape& shape, const AttentionBatch& batch,
                     const KvLayer& cache, const Tensor& q_out);
void latent_rope_store(const Columns& rotated_q, const Columns& kv, const Tensor& norm,
                       const Tensor& rope, const AttentionShape& shape, const AttentionBatch& batch,
                       const KvLayer& cache, const Tensor& q_out);
void attend(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
            const KvLayer& cache, const Tensor& out);
void kv_rows(const KvLayer& cache, const AttentionShape& shape, const Tensor& slots,
             const Tensor& rows);
void accumulate_weights(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                        const KvLayer& cache);
void index_rope_store(const IndexQueries& index, const Tensor& key, const Tensor& rope,
                      const AttentionShape& shape, const AttentionBatch& batch);
void compact(const KvCompaction& compaction, const AttentionShape& shape, const Tensor& rope,
             const KvLayer& cache);
void square_sums(const Tensor& qkv, const AttentionShape& shape, const Tensor& sums);
void norm_projections(const Tensor& qkv, const AttentionShape& shape, const ProjectionNorm& norm);
void add_expert_bias(const Tensor& x, const ExpertBatch& batch, const Tensor& bias);
void add_chosen_bias(const Tensor& ids, const Tensor& weights, const Tensor& bias,
                     const Tensor& out);
void route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
           const Tensor& ids, const Tensor& weights);
void permute(const Tensor& ids, const ExpertBatch& batch);
void count_rows(const ExpertBatch& batch, const Tensor& counts);
void permute_received(const Tensor& ids, const Tensor& received_counts, const ExpertBatch& batch,
                      const Tensor& counts);
void route_and_permute(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                       const ExpertChoices& choices, const ExpertBatch& batch,
                       const Tensor& counts);
void route_tokens(const Linear& router, const Tensor& x, const Tensor& logits, const Tensor& bias,
                  const RouterOptions& options, const ExpertChoices& choices,
                  const ExpertBatch& batch, const Tensor& counts);
void grouped_linear(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                    bool gather, const Tensor& out);
void heads_linear(const GroupedLinear& weights, const Columns& x, const Tensor& out);
void grouped_gate_up(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                     const Tensor& scratch, const Tensor& out);
void combine(const Tensor& x, const Tensor& weights, const Tensor& out);
void expert_mlp(const GroupedLinear& gate_up, const GroupedLinear& down, const Tensor& x,
                const ExpertChoices& choices, const ExpertBatch& batch,
                const ExpertScratch& scratch, const Tensor& out, const SharedMlp& shared);
void resolve_sampled_ids(const Tensor& chosen, const Tensor& ids);
void sample(const Tensor& logits, std::span<const SampledRow> rows, const Tensor& edited,
            const Tensor& ids);
void score(const Tensor& logits, std::span<const ScoredRow> rows, const Tensor& ids,
           const Tensor& scores);

}  // namespace troupe::op_checks
