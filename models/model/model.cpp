#include "models/model/model.hpp"

#include "models/families/family.hpp"
#include "models/layers/weights.hpp"
#include "models/model/decoder_model.hpp"

namespace troupe {

namespace {

Result<void> check_parallel(const ParallelContext& parallel) {
  if (parallel.shape.tensor == 1) return {};
  if (parallel.tensor == nullptr || parallel.tensor->size() != parallel.shape.tensor ||
      parallel.tensor->rank() != parallel.at.tensor) {
    return fail(ErrorCode::invalid_argument,
                "tensor rank {} of {} needs the collectives of its group", parallel.at.tensor,
                parallel.shape.tensor);
  }
  return {};
}

Result<void> check_limits(const ModelConfig& config, const ModelLimits& limits) {
  const auto at_least_one = [](std::string_view name, std::int64_t value) -> Result<void> {
    if (value >= 1) return {};
    return fail(ErrorCode::invalid_argument, "{} must be at least 1, found {}", name, value);
  };
  TROUPE_CHECK(at_least_one("max_batch_tokens", limits.max_batch_tokens));
  TROUPE_CHECK(at_least_one("max_head_rows", limits.max_head_rows));
  TROUPE_CHECK(at_least_one("block_size", limits.block_size));
  if (limits.max_positions < 0 || limits.max_positions > config.max_position_embeddings) {
    return fail(ErrorCode::invalid_argument,
                "sequences of {} tokens are longer than the model's max_position_embeddings {}",
                limits.max_positions, config.max_position_embeddings);
  }
  const auto floating = [](DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; };
  if (!floating(limits.compute) || !floating(limits.kv_dtype)) {
    return fail(ErrorCode::unsupported,
                "computing in {} with a KV cache in {}; f32 and bf16 are "
                "supported",
                to_string(limits.compute), to_string(limits.kv_dtype));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(const ModelConfig& config, const Checkpoint& checkpoint,
                                          Ops& ops, const ParallelContext& parallel,
                                          const ModelLimits& limits) {
  TROUPE_CHECK(check_parallel(parallel));
  TROUPE_CHECK(check_limits(config, limits));
  TROUPE_CHECK(check_model(config, checkpoint, parallel.shape));
  return DecoderModel::load(config, checkpoint, ops, parallel, limits);
}

Result<void> check_model(const ModelConfig& config, const Checkpoint& checkpoint,
                         const MeshShape& shape) {
  if (shape.pipeline > 1 || shape.context > 1) {
    return fail(ErrorCode::unsupported,
                "pipeline size {} and context size {}: this version runs 1 of each", shape.pipeline,
                shape.context);
  }
  return check_weights(config, checkpoint, family_of(config.architecture).weights, shape.tensor);
}

}  // namespace troupe
