#include "models/layers/weights/weights.hpp"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// The extent that a row-parallel matrix's segments must divide: the heads, or its own K.
std::int64_t segment_extent(const WeightRule& rule, const ModelConfig& config) {
  return rule.shard == ShardRule::heads_in ? config.heads : shape_of(rule.parameter, config)[1];
}

bool is_row_parallel(ShardRule shard) {
  return shard == ShardRule::row || shard == ShardRule::heads_in;
}

/// The part of a stored matrix that a rank reads. A vector counts as a matrix of one column.
Result<StoredPart> find_part(const Checkpoint& checkpoint, const WeightRule& rule,
                             const std::string& name, const ModelConfig& config, ShardOf shard) {
  TROUPE_TRY(StoredTensor weight, checkpoint.stored_weight(name, shape_of(rule.parameter, config)));
  Tensor& view = weight.view;
  if (view.shape().rank() == 1) view = view.reshaped({view[0], 1});
  const HeadLayout layout = head_layout(rule.parameter, config);
  TROUPE_TRY(const WeightShard slice,
             shard_weight(name, rule.shard, view[0], view[1], layout, shard));
  return StoredPart{weight, slice.rows, slice.cols};
}

/// Refuses a weight that cannot be split over `ranks` ranks.
Result<void> check_use(const WeightUse& use, const ModelConfig& config,
                       const Checkpoint& checkpoint, int ranks) {
  const WeightRule& rule = *use.rule;
  const std::string name = checkpoint_name(rule, use.layer, use.expert);
  TROUPE_TRY([[maybe_unused]] const StoredPart part,
             find_part(checkpoint, rule, name, config, {0, ranks}));
  if (is_row_parallel(rule.shard)) {
    TROUPE_TRY([[maybe_unused]] const int segments,
               segments_per_rank(name, segment_extent(rule, config), ranks));
  }
  return {};
}

/// Stacks the parts one below the other.
StoredMatrix stack_parts(std::vector<StoredPart> parts, DType compute) {
  StoredMatrix stacked{.columns = parts.front().cols.count,
                       .dtype = parts.front().matrix.view.dtype()};
  for (const StoredPart& part : parts) {
    stacked.rows += part.rows.count;
    if (part.matrix.view.dtype() != stacked.dtype) stacked.dtype = DType::f32;
  }
  if (compute == DType::bf16) stacked.dtype = DType::bf16;
  stacked.parts = std::move(parts);
  return stacked;
}

}  // namespace

const WeightRule& Weights::rule(Parameter parameter) const {
  const auto found = std::ranges::find(rules_, parameter, &WeightRule::parameter);
  assert(found != rules_.end());
  return *found;
}

Result<StoredMatrix> Weights::stacked(Stack stack, std::int64_t layer, std::int64_t expert) const {
  std::vector<StoredPart> parts;
  for (const Parameter parameter : stack) {
    const WeightRule& found = rule(parameter);
    const std::string name = checkpoint_name(found, layer, expert);
    TROUPE_TRY(const StoredPart part,
               find_part(checkpoint_, found, name, config_, shard_of(parameter)));
    parts.push_back(part);
  }
  return stack_parts(std::move(parts), compute_);
}

Result<HostTensor> Weights::matrix(Parameter parameter, std::int64_t layer) const {
  TROUPE_TRY(const StoredMatrix stored, stacked({parameter}, layer, 0));
  return in_host_memory(stored);
}

Result<int> Weights::segments(Parameter parameter, std::int64_t layer) const {
  const WeightRule& found = rule(parameter);
  if (!is_row_parallel(found.shard)) return 1;
  const std::int64_t extent = segment_extent(found, config_);
  const int ranks = shard_of(parameter).size;
  const std::string name = checkpoint_name(found, layer, 0);
  // Split experts are summed in another way than whole ones.
  if (!exact_sums_ || is_expert(parameter)) return segments_per_rank(name, extent, ranks);
  return segments_per_rank(name, extent, ranks, max_exact_segments);
}

Result<std::unique_ptr<Linear>> Weights::linear(Stack stack, std::int64_t layer) const {
  TROUPE_TRY(const StoredMatrix weight, stacked(stack, layer, 0));
  TROUPE_TRY(const int parts, segments(*stack.begin(), layer));
  return ops_.weights().load(weight, parts);
}

Result<std::unique_ptr<GroupedLinear>> Weights::grouped_linear(Stack stack,
                                                               std::int64_t layer) const {
  std::vector<StoredMatrix> weights;
  const Slice experts = experts_.experts;
  for (std::int64_t expert = experts.begin; expert < experts.end(); ++expert) {
    TROUPE_TRY(StoredMatrix weight, stacked(stack, layer, expert));
    weights.push_back(std::move(weight));
  }
  TROUPE_TRY(const int parts, segments(*stack.begin(), layer));
  return ops_.weights().load_grouped(weights, parts);
}

Result<DeviceTensor> Weights::vector(Stack stack, std::int64_t layer) const {
  TROUPE_TRY(StoredMatrix stored, stacked(stack, layer, 0));
  stored.dtype = DType::f32;
  const HostTensor exact = in_host_memory(stored);
  TROUPE_TRY(DeviceTensor device, ops_.memory().allocate(DType::f32, {stored.rows}));
  ops_.memory().upload(exact->reshaped({stored.rows}), device);
  TROUPE_CHECK(ops_.stream().synchronize());
  return device;
}

Result<StoredMatrix> Weights::vocabulary_rows(Parameter parameter) const {
  const WeightRule& found = rule(parameter);
  const std::string name = checkpoint_name(found, 0, 0);
  TROUPE_TRY(const StoredPart part, find_part(checkpoint_, found, name, config_, shard_));
  StoredMatrix table = stack_parts({part}, compute_);
  table.rows = ceil_slice(config_.vocab_size, {0, shard_.size}).count;
  return table;
}

Result<void> check_weights(const ModelConfig& config, const Checkpoint& checkpoint,
                           std::span<const WeightRule> rules, const Mesh& mesh) {
  const int expert_ranks = mesh.expert_parallel_size();
  if (expert_ranks > 1 && !config.moe) {
    return fail(ErrorCode::invalid_argument, "expert_parallel_size {}: the model has no experts",
                expert_ranks);
  }
  if (config.moe) {
    TROUPE_CHECK(
        check_divides("expert_parallel_size", expert_ranks, "the experts", config.moe->experts));
  }
  const int tensor_size = mesh.shape().tensor;
  const int expert_parts = mesh.expert_place(0).split_count;
  for (const WeightUse& use : weights_in_use(config, rules)) {
    const bool expert = is_expert(use.rule->parameter);
    Result<void> checked = check_use(use, config, checkpoint, expert ? expert_parts : tensor_size);
    if (checked.ok()) continue;
    if (!expert || expert_parts == tensor_size ||
        checked.error().code != ErrorCode::invalid_argument) {
      return checked;
    }
    return fail(checked.error().code, "{} (each expert is split by tensor size {} / {})",
                checked.error().message, tensor_size, expert_ranks);
  }
  return {};
}

}  // namespace troupe
