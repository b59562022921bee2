#include "models/layers/moe/expert_group.hpp"

#include <utility>

namespace troupe {
namespace {

/// True if sums are rounded anyway, between experts and between ranks.
bool rounds_sums(const ModelLimits& limits, const Ops& ops) {
  return ops.activation_dtype() != DType::f32 && !limits.exact_sums;
}

/// True if the tensor group's ranks together hold all experts.
bool tensor_ranks_have_all(const Mesh& mesh) {
  return mesh.expert_parallel_size() <= mesh.shape().tensor;
}

}  // namespace

Result<ExpertGroup> ExpertGroup::create(const ModelConfig& config, const ModelLimits& limits,
                                        const ParallelContext& parallel, Ops& ops) {
  ExpertGroup group;
  if (!config.moe) return group;
  const Mesh& mesh = parallel.mesh;
  group.share_ = expert_share(config.moe->experts, mesh, parallel.rank);
  const bool rounds = rounds_sums(limits, ops);
  if (mesh.expert_parallel_size() == 1 || (rounds && tensor_ranks_have_all(mesh))) return group;
  const std::int64_t max_tokens =
      ceil_slice(limits.max_batch_tokens, {0, mesh.shape().tensor}).count;
  if (group.share_.part.size == 1 && rounds) {
    TROUPE_TRY(group.device_exchange_, parallel.experts.device->open_expert_exchange(
                                           {.max_rows = max_tokens,
                                            .width = config.hidden_size,
                                            .top_k = config.moe->top_k,
                                            .local_experts = group.share_.experts.count,
                                            .takes_codes = ops.moe().multiplies_codes()}));
    if (group.device_exchange_ != nullptr) return group;
  }
  const ExpertLayout layout{.experts = config.moe->experts,
                            .expert_ranks = mesh.expert_parallel_size(),
                            .parts = group.share_.part.size,
                            .top_k = config.moe->top_k,
                            .max_tokens = max_tokens};
  TROUPE_TRY(auto exchange,
             ExpertExchange::create(*parallel.experts.host, *parallel.experts.device, layout));
  group.host_exchange_.emplace(std::move(exchange));
  return group;
}

}  // namespace troupe
