#include "models/model/model.hpp"

#include "models/families/family.hpp"
#include "models/layers/weights/weights.hpp"
#include "models/model/decoder_model.hpp"
#include "models/model/stages.hpp"

namespace troupe {

namespace {

Result<void> check_group(std::string_view what, const RankGroup& group, int rank, int size) {
  const auto fits = [&](const Collectives* of) {
    return of != nullptr && of->size() == size && of->rank() == rank;
  };
  if (size == 1 || (fits(group.host) && fits(group.device))) return {};
  return fail(ErrorCode::invalid_argument, "{} rank {} of {} needs the collectives of its group",
              what, rank, size);
}

Result<void> check_parallel(const ParallelContext& parallel) {
  const MeshCoordinates at = parallel.at();
  const MeshShape& shape = parallel.mesh.shape();
  TROUPE_CHECK(check_group("tensor", parallel.tensor, at.tensor, shape.tensor));
  TROUPE_CHECK(check_group("context", parallel.context, at.context, shape.context));
  TROUPE_CHECK(check_group("pipeline", parallel.pipeline, at.stage, shape.pipeline));
  if (parallel.mesh.data_parallel_attention()) {
    TROUPE_CHECK(check_group("dense", parallel.dense, parallel.mesh.dense_index(parallel.rank),
                             parallel.mesh.dense_size()));
    if (parallel.sequence_parallel) {
      return fail(ErrorCode::unsupported,
                  "data_parallel_attention with sequence_parallel: each replica holds whole rows");
    }
  }
  const int expert_ranks = parallel.mesh.expert_parallel_size();
  if (expert_ranks == 1) return {};
  const ExpertPlace place = parallel.mesh.expert_place(parallel.rank);
  return check_group("experts", parallel.experts,
                     place.split_index * expert_ranks + place.expert_rank,
                     expert_ranks * place.split_count);
}

Result<void> check_limits(const ModelConfig& config, const ModelLimits& limits) {
  const auto at_least_one = [](std::string_view name, std::int64_t value) -> Result<void> {
    if (value >= 1) return {};
    return fail(ErrorCode::invalid_argument, "{} must be at least 1, found {}", name, value);
  };
  TROUPE_CHECK(at_least_one("max_batch_tokens", limits.max_batch_tokens));
  TROUPE_CHECK(at_least_one("max_head_rows", limits.max_head_rows));
  TROUPE_CHECK(at_least_one("block_size", limits.block_size));
  const KvPolicy& policy = limits.kv_policy;
  const std::int64_t longest = policy.rotates_by_entry()
                                   ? policy.most_entries(limits.max_positions, 0)
                                   : limits.max_positions;
  if (longest < 0 || longest > config.max_position_embeddings) {
    return fail(ErrorCode::invalid_argument,
                "sequences of {} tokens are longer than the model's max_position_embeddings {}",
                longest, config.max_position_embeddings);
  }
  const auto floating = [](DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; };
  if (!floating(limits.compute) || (!floating(limits.kv_dtype) && !is_code(limits.kv_dtype))) {
    return fail(ErrorCode::unsupported,
                "computing in {} with a KV cache in {}; f32 and bf16 are supported, and caches of "
                "i8, f8_e4m3 and i4x2",
                to_string(limits.compute), to_string(limits.kv_dtype));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(const ModelConfig& config, const Checkpoint& checkpoint,
                                          Ops& ops, const ParallelContext& parallel,
                                          const ModelLimits& limits,
                                          const OnWeightsLoaded& on_loaded) {
  TROUPE_CHECK(check_parallel(parallel));
  TROUPE_CHECK(check_limits(config, limits));
  TROUPE_CHECK(check_model(config, checkpoint, parallel.mesh));
  return DecoderModel::load(config, checkpoint, ops, parallel, limits, on_loaded);
}

Result<void> check_model(const ModelConfig& config, const Checkpoint& checkpoint,
                         const Mesh& mesh) {
  const MeshShape& shape = mesh.shape();
  if (shape.context > 1 && mesh.expert_parallel_size() > shape.tensor) {
    return fail(ErrorCode::unsupported,
                "expert_parallel_size {} with context_parallel_size {}: experts are spread over "
                "the {} tensor ranks of a context rank, not over context ranks",
                mesh.expert_parallel_size(), shape.context, shape.tensor);
  }
  if (shape.context > 1 && config.latent && config.latent->index_top_k > 0) {
    return fail(ErrorCode::unsupported,
                "context_parallel_size {} with sparse attention (index_topk {}): ranks do not "
                "exchange index keys; set it to 1",
                shape.context, config.latent->index_top_k);
  }
  TROUPE_TRY([[maybe_unused]] const auto stages, stage_layers(config, shape.pipeline));
  return check_weights(config, checkpoint, weight_rules_of(config), mesh);
}

}  // namespace troupe
