#include "models/layers/weights.hpp"

#include <algorithm>
#include <cassert>
#include <vector>

namespace troupe {

namespace {

/// What the segments of a row-parallel matrix must divide: whole heads, or its own K.
std::int64_t segment_extent(const WeightRule& rule, const ModelConfig& config) {
  return rule.shard == ShardRule::heads_in ? config.heads : shape_of(rule.parameter, config)[1];
}

bool is_row_parallel(ShardRule shard) {
  return shard == ShardRule::row || shard == ShardRule::heads_in;
}

/// A matrix of a checkpoint with the part of it that a rank reads.
struct Part {
  Tensor weight;
  WeightShard shard;
};

/// A vector counts as a matrix of one column.
Result<Part> find_part(const Checkpoint& checkpoint, const WeightRule& rule,
                       const std::string& name, const ModelConfig& config, ShardOf shard) {
  TROUPE_TRY(Tensor weight, checkpoint.weight(name, shape_of(rule.parameter, config)));
  if (weight.shape().rank() == 1) weight = weight.reshaped({weight[0], 1});
  const HeadLayout layout = head_layout(rule.parameter, config);
  TROUPE_TRY(const WeightShard slice,
             shard_weight(name, rule.shard, weight[0], weight[1], layout, shard));
  return Part{weight, slice};
}

/// Refuses a weight that `ranks` ranks cannot share.
Result<void> check_use(const WeightUse& use, const ModelConfig& config,
                       const Checkpoint& checkpoint, int ranks) {
  const WeightRule& rule = *use.rule;
  const std::string name = checkpoint_name(rule, use.layer, use.expert);
  TROUPE_CHECK(find_part(checkpoint, rule, name, config, {0, ranks}));
  if (is_row_parallel(rule.shard)) {
    TROUPE_CHECK(segments_per_rank(name, segment_extent(rule, config), ranks));
  }
  return {};
}

HostTensor stack_parts(std::span<const Part> parts, DType compute) {
  DType dtype = parts.front().weight.dtype();
  std::int64_t rows = 0;
  for (const Part& part : parts) {
    rows += part.shard.rows.count;
    if (part.weight.dtype() != dtype) dtype = DType::f32;
  }
  if (compute == DType::bf16) dtype = DType::bf16;
  HostTensor stacked(dtype, {rows, parts.front().shard.cols.count});
  std::int64_t row = 0;
  for (const Part& part : parts) {
    read_shard(part.weight, part.shard, stacked->rows(row, part.shard.rows.count));
    row += part.shard.rows.count;
  }
  return stacked;
}

}  // namespace

const WeightRule& Weights::rule(Parameter parameter) const {
  const auto found = std::ranges::find(rules_, parameter, &WeightRule::parameter);
  assert(found != rules_.end());
  return *found;
}

Result<HostTensor> Weights::stacked(Stack stack, std::int64_t layer, std::int64_t expert) const {
  std::vector<Part> parts;
  for (const Parameter parameter : stack) {
    const WeightRule& found = rule(parameter);
    const std::string name = checkpoint_name(found, layer, expert);
    TROUPE_TRY(const Part part, find_part(checkpoint_, found, name, config_, shard_of(parameter)));
    parts.push_back(part);
  }
  return stack_parts(parts, compute_);
}

Result<int> Weights::segments(Parameter parameter, std::int64_t layer) const {
  const WeightRule& found = rule(parameter);
  if (!is_row_parallel(found.shard)) return 1;
  return segments_per_rank(checkpoint_name(found, layer, 0), segment_extent(found, config_),
                           shard_of(parameter).size);
}

Result<std::unique_ptr<Linear>> Weights::linear(Stack stack, std::int64_t layer) const {
  TROUPE_TRY(const HostTensor weight, stacked(stack, layer, 0));
  TROUPE_TRY(const int parts, segments(*stack.begin(), layer));
  return ops_.prepare(weight, parts);
}

Result<std::unique_ptr<GroupedLinear>> Weights::grouped_linear(Stack stack,
                                                               std::int64_t layer) const {
  std::vector<HostTensor> owners;
  std::vector<Tensor> views;
  const Slice experts = experts_.experts;
  for (std::int64_t expert = experts.begin; expert < experts.end(); ++expert) {
    TROUPE_TRY(HostTensor weight, stacked(stack, layer, expert));
    views.push_back(weight);
    owners.push_back(std::move(weight));
  }
  TROUPE_TRY(const int parts, segments(*stack.begin(), layer));
  return ops_.prepare_grouped(views, parts);
}

Result<DeviceTensor> Weights::vector(Stack stack, std::int64_t layer) const {
  std::vector<Part> parts;
  std::int64_t elements = 0;
  for (const Parameter parameter : stack) {
    const WeightRule& found = rule(parameter);
    const std::string name = checkpoint_name(found, layer, 0);
    TROUPE_TRY(const Part part, find_part(checkpoint_, found, name, config_, shard_));
    elements += part.shard.rows.count;
    parts.push_back(part);
  }
  const HostTensor exact(DType::f32, {elements, 1});
  std::int64_t at = 0;
  for (const Part& part : parts) {
    read_shard(part.weight, part.shard, exact->rows(at, part.shard.rows.count));
    at += part.shard.rows.count;
  }
  TROUPE_TRY(DeviceTensor device, ops_.allocate(DType::f32, {elements}));
  ops_.upload(exact->reshaped({elements}), device);
  TROUPE_CHECK(ops_.synchronize());
  return device;
}

Result<HostTensor> Weights::vocabulary_rows(Parameter parameter) const {
  const WeightRule& found = rule(parameter);
  const std::string name = checkpoint_name(found, 0, 0);
  TROUPE_TRY(const Part part, find_part(checkpoint_, found, name, config_, shard_));
  const std::int64_t rows = ceil_slice(config_.vocab_size, {0, shard_.size}).count;
  const DType dtype = compute_ == DType::bf16 ? DType::bf16 : part.weight.dtype();
  HostTensor table(dtype, {rows, config_.hidden_size});
  read_shard(part.weight, part.shard, table->rows(0, part.shard.rows.count));
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
