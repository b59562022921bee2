#include "models/layers/weights/weights.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/ops/coded_matrix.hpp"
#include "models/ops/weight_format.hpp"

namespace troupe {

namespace {

/// The extent that a row-parallel matrix's segments must divide: the heads, or its own K.
std::int64_t segment_extent(const WeightRule& rule, const ModelConfig& config) {
  return rule.shard == ShardRule::heads_in ? config.heads : shape_of(rule.parameter, config)[1];
}

bool is_row_parallel(ShardRule shard) {
  return shard == ShardRule::row || shard == ShardRule::heads_in;
}

/// A rank's part of a parameter.
Result<WeightShard> find_shard(const WeightRule& rule, const std::string& name,
                               const ModelConfig& config, ShardOf shard) {
  const Shape shape = shape_of(rule.parameter, config);
  return shard_weight(name, rule.shard, shape[0], shape.rank() == 1 ? 1 : shape[1],
                      head_layout(rule.parameter, config), shard);
}

/// The parts of a stored matrix that a rank reads. A vector counts as a matrix of one column.
Result<std::vector<StoredPart>> find_parts(const Checkpoint& checkpoint, const WeightRule& rule,
                                           const std::string& name, const ModelConfig& config,
                                           ShardOf shard) {
  TROUPE_TRY(StoredTensor weight, checkpoint.stored_weight(name, stored_shape(rule, config)));
  Tensor& view = weight.view;
  if (view.shape().rank() == 1) view = view.reshaped({view[0], 1});
  TROUPE_TRY(const WeightShard slice, find_shard(rule, name, config, shard));
  std::vector<StoredPart> parts;
  for (const Slice rows : stored_rows(rule, slice.rows, config)) {
    parts.push_back({weight, rows, slice.cols});
  }
  return parts;
}

/// Refuses a weight that cannot be split over `ranks` ranks.
Result<void> check_use(const WeightUse& use, const ModelConfig& config,
                       const Checkpoint& checkpoint, int ranks) {
  const WeightRule& rule = *use.rule;
  const std::string name = checkpoint_name(rule, use.layer, use.expert);
  TROUPE_TRY([[maybe_unused]] const auto parts,
             find_parts(checkpoint, rule, name, config, {0, ranks}));
  TROUPE_TRY([[maybe_unused]] const int segments, segments_of(rule, name, config, ranks));
  return {};
}

/// Rows and columns of an expert in `stored`, the codes of all experts' matrices, of which those at
/// `place` of `stack` are asked for.
StoredPart coded_expert(const StoredTensor& stored, const WeightShard& slice, std::int64_t expert,
                        std::int64_t place, std::span<const Parameter> stack) {
  StoredPart part{
      .matrix = stored, .rows = slice.rows, .cols = slice.cols, .row_step = std::ssize(stack)};
  const std::int64_t outputs = stored.groups[1];
  const std::int64_t first = expert * outputs + place;
  const auto rows_from = [&](const Tensor& of_all) {
    const std::int64_t rows = stored.groups[0] * outputs;
    return of_all.reshaped({rows, of_all.elements() / rows}).rows(first, outputs - place);
  };
  part.matrix.view = rows_from(stored.view);
  part.matrix.companion = rows_from(stored.companion);
  part.matrix.groups = part.matrix.companion.shape();
  part.matrix.offset += static_cast<std::uint64_t>(first * part.matrix.view[1]);
  return part;
}

/// Stacks the parts one below the other.
StoredMatrix stack_parts(std::vector<StoredPart> parts, DType compute) {
  StoredMatrix stacked{.columns = parts.front().cols.count, .dtype = parts.front().matrix.dtype()};
  for (const StoredPart& part : parts) {
    stacked.rows += part.rows.count;
    if (part.matrix.dtype() != stacked.dtype) stacked.dtype = DType::f32;
  }
  if (compute == DType::bf16) stacked.dtype = DType::bf16;
  stacked.parts = std::move(parts);
  return stacked;
}

}  // namespace

Result<int> segments_of(const WeightRule& rule, const std::string& name, const ModelConfig& config,
                        int ranks, int most) {
  if (!is_row_parallel(rule.shard)) return 1;
  return segments_per_rank(name, segment_extent(rule, config), ranks, most);
}

const WeightRule& Weights::rule(Parameter parameter) const {
  const auto found = std::ranges::find(rules_, parameter, &WeightRule::parameter);
  assert(found != rules_.end());
  return *found;
}

Result<StoredMatrix> Weights::stacked(Stack stack, std::int64_t layer, std::int64_t expert) const {
  std::vector<StoredPart> parts;
  for (const Parameter parameter : stack) {
    const WeightRule& found = rule(parameter);
    if (found.stored_as == StoredAs::expert_columns) {
      TROUPE_TRY(const StoredPart part, expert_part(parameter, layer, expert, shard_of(parameter)));
      parts.push_back(part);
      continue;
    }
    const std::string name = checkpoint_name(found, layer, expert);
    TROUPE_TRY(const auto found_parts,
               find_parts(checkpoint_, found, name, config_, shard_of(parameter)));
    parts.insert(parts.end(), found_parts.begin(), found_parts.end());
  }
  return stack_parts(std::move(parts), compute_);
}

Result<StoredPart> Weights::expert_part(Parameter parameter, std::int64_t layer,
                                        std::int64_t expert, ShardOf shard) const {
  const WeightRule& found = rule(parameter);
  const std::string name = checkpoint_name(found, layer, expert);
  TROUPE_TRY(const StoredTensor stored,
             checkpoint_.stored_weight(name, stored_shape(found, config_)));
  TROUPE_TRY(const WeightShard slice, find_shard(found, name, config_, shard));
  const auto place = std::ranges::find(found.stack, parameter) - found.stack.begin();
  if (stored.format != nullptr) return coded_expert(stored, slice, expert, place, found.stack);
  // [inputs, outputs] of this expert; a bias has one input.
  const bool is_vector = stored.view.shape().rank() == 2;
  const std::int64_t inputs = is_vector ? 1 : stored.view[1];
  const std::int64_t outputs = stored.view[is_vector ? 1 : 2];
  const auto before =
      static_cast<std::size_t>(expert * inputs * outputs + place) * size_of(stored.view.dtype());
  StoredPart part{.matrix = stored,
                  .rows = slice.rows,
                  .cols = slice.cols,
                  .row_step = std::ssize(found.stack)};
  part.matrix.view = {
      static_cast<std::byte*>(stored.view.data()) + before, stored.view.dtype(), {inputs, outputs}};
  part.matrix.offset += before;
  return part;
}

Result<HostTensor> Weights::matrix(Stack stack, std::int64_t layer) const {
  TROUPE_TRY(const StoredMatrix stored, stacked(stack, layer, 0));
  return in_host_memory(stored);
}

Result<int> Weights::segments(Parameter parameter, std::int64_t layer) const {
  const WeightRule& found = rule(parameter);
  const std::string name = checkpoint_name(found, layer, 0);
  // Split experts are summed in another way than whole ones.
  const bool has_fewer = exact_sums_ && !is_expert(parameter);
  const int most = has_fewer ? max_exact_segments : max_segments;
  return segments_of(found, name, config_, shard_of(parameter).size, most);
}

void Weights::note(Stack stack, std::int64_t layer, Linear& matrix, std::string_view why) const {
  note_kernel(stack, layer, matrix.kernel(), why);
  const bool is_head = is_global(*stack.begin());
  if (matrix.rounds_rows() && !is_head) rounding_->linear[layer].push_back(&matrix);
}

void Weights::note(Stack stack, std::int64_t layer, GroupedLinear& matrices,
                   std::string_view why) const {
  note_kernel(stack, layer, matrices.kernel(), why);
  if (matrices.rounds_rows()) rounding_->experts[layer].push_back(&matrices);
}

void Weights::note_kernel(Stack stack, std::int64_t layer, const std::string& kernel,
                          std::string_view why) const {
  if (kernel.empty()) return;
  std::string matrix;
  for (const Parameter parameter : stack) {
    // "q_proj" of "layers.{layer}.self_attn.q_proj.weight"
    std::string_view name = rule(parameter).name;
    if (name.ends_with(".weight")) name.remove_suffix(std::string_view(".weight").size());
    if (!matrix.empty()) matrix += '+';
    matrix += name.substr(name.rfind('.') + 1);
  }
  const bool is_head = is_global(*stack.begin());  // tables are not multiplied
  kernels_->add(why.empty() ? kernel : kernel + ", " + std::string(why), is_head ? "head" : matrix,
                is_head ? -1 : layer);
}

Result<std::unique_ptr<Linear>> Weights::linear(Stack stack, std::int64_t layer) const {
  TROUPE_TRY(const StoredMatrix weight, stacked(stack, layer, 0));
  TROUPE_TRY(const int parts, segments(*stack.begin(), layer));
  const WeightEncoding encoding = encoding_of(*stack.begin());
  TROUPE_TRY(auto linear, ops_.weights().load(weight, parts, encoding));
  note(stack, layer, *linear, coded_form(weight, encoding).obstacle);
  return linear;
}

Result<std::unique_ptr<Linear>> Weights::prepare(Stack stack, std::int64_t layer,
                                                 const Tensor& rearranged) const {
  TROUPE_TRY(auto linear, ops_.weights().prepare(rearranged, 1, encoding_of(*stack.begin())));
  note(stack, layer, *linear, why_decoded());
  return linear;
}

Result<std::unique_ptr<GroupedLinear>> Weights::grouped_linear(Stack stack,
                                                               std::int64_t layer) const {
  const Slice experts = experts_.experts;
  TROUPE_TRY(const int parts, segments(*stack.begin(), layer));
  std::vector<StoredMatrix> weights;
  for (std::int64_t expert = experts.begin; expert < experts.end(); ++expert) {
    TROUPE_TRY(StoredMatrix weight, stacked(stack, layer, expert));
    weights.push_back(std::move(weight));
  }
  const WeightEncoding encoding = encoding_of(*stack.begin());
  TROUPE_TRY(auto grouped, ops_.weights().load_grouped(weights, parts, encoding));
  note(stack, layer, *grouped, coded_form(weights, encoding).obstacle);
  return grouped;
}

Result<DeviceTensor> Weights::expert_vectors(Stack stack, std::int64_t layer, bool of_all) const {
  const Slice experts = of_all ? Slice{0, config_.moe->experts} : experts_.experts;
  const ShardOf part = of_all ? ShardOf() : experts_.part;
  HostTensor all;
  for (std::int64_t i = 0; i < experts.count; ++i) {
    std::vector<StoredPart> parts;
    for (const Parameter parameter : stack) {
      TROUPE_TRY(const StoredPart found, expert_part(parameter, layer, experts.begin + i, part));
      parts.push_back(found);
    }
    StoredMatrix column = stack_parts(std::move(parts), compute_);
    column.dtype = DType::f32;
    const HostTensor one = in_host_memory(column);
    if (i == 0) all = HostTensor(DType::f32, {experts.count, one->elements()});
    std::ranges::copy(one->span<float>(), all->rows(i, 1).as<float>());
  }
  return upload(all);
}

Result<HostTensor> Weights::host_vector(Stack stack, std::int64_t layer) const {
  TROUPE_TRY(StoredMatrix stored, stacked(stack, layer, 0));
  stored.dtype = DType::f32;
  const HostTensor column = in_host_memory(stored);
  HostTensor values(DType::f32, {column->elements()});
  std::ranges::copy(column->span<float>(), values->as<float>());
  return values;
}

Result<DeviceTensor> Weights::upload(const HostTensor& values) const {
  TROUPE_TRY(DeviceTensor device, ops_.memory().allocate(DType::f32, values->shape()));
  ops_.memory().upload(values, device);
  TROUPE_CHECK(ops_.stream().synchronize());
  return device;
}

Result<DeviceTensor> Weights::vector(Stack stack, std::int64_t layer) const {
  TROUPE_TRY(const HostTensor values, host_vector(stack, layer));
  return upload(values);
}

Result<StoredMatrix> Weights::vocabulary_rows(Parameter parameter) const {
  const WeightRule& found = rule(parameter);
  const std::string name = checkpoint_name(found, 0, 0);
  TROUPE_TRY(auto parts, find_parts(checkpoint_, found, name, config_, dense_shard_));
  StoredMatrix table = stack_parts(std::move(parts), compute_);
  table.rows = ceil_slice(config_.vocab_size, {0, dense_shard_.size}).count;
  return table;
}

// Beside the attention's matrices, as compressed-tensors writes them, or beside the projection of
// the keys or values (ModelOpt).
Result<float> Weights::kv_scale(std::string_view name, std::int64_t layer) const {
  const std::string attention = attention_module({&rule(Parameter::output), 1}, layer);
  const std::string own = fmt::format("{}.{}", attention, name);
  const std::string of_projection = fmt::format("{}.{}_proj.{}", attention, name.front(), name);
  const std::string& found = checkpoint_.contains(own) ? own : of_projection;
  if (!checkpoint_.contains(found)) return 0.0F;
  TROUPE_TRY(const Tensor scale, checkpoint_.tensor(found));
  if (scale.elements() != 1 || (scale.dtype() != DType::f32 && scale.dtype() != DType::bf16 &&
                                scale.dtype() != DType::f16)) {
    return fail(ErrorCode::unsupported, "{}: {} is not one number", checkpoint_.folder().string(),
                found);
  }
  const float value = scale_at(scale, 0);
  if (std::isfinite(value) && value > 0.0F) return value;
  return fail(ErrorCode::corrupt_data, "{}: {} is {}, not a positive number",
              checkpoint_.folder().string(), found, value);
}

Result<void> Weights::set_kv_scales(std::int64_t layer, AttentionShape& shape) const {
  if (checkpoint_.quantization().kv_codes != kv_dtype_) return {};
  TROUPE_TRY(shape.key_scale, kv_scale("k_scale", layer));
  TROUPE_TRY(shape.value_scale, kv_scale("v_scale", layer));
  return {};
}

Result<void> check_scales(const ModelConfig& config, const Checkpoint& checkpoint,
                          std::span<const WeightRule> rules) {
  if (checkpoint.quantization().groups.empty()) return {};
  std::set<std::string> seen;
  for (const WeightUse& use : weights_in_use(config, rules)) {
    const Shape shape = stored_shape(*use.rule, config);
    const std::string name = checkpoint_name(*use.rule, use.layer, use.expert);
    if (shape.rank() == 1 || !seen.insert(name).second) continue;
    TROUPE_TRY(const StoredTensor weight, checkpoint.stored_weight(name, shape));
    TROUPE_CHECK(checkpoint.check_scales(name, weight));
  }
  return {};
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
    const bool dense = is_dense(use.rule->parameter);
    const int ranks = expert ? expert_parts : dense ? mesh.dense_size() : tensor_size;
    Result<void> checked = check_use(use, config, checkpoint, ranks);
    if (checked.ok()) continue;
    if (dense && ranks != tensor_size && checked.error().code == ErrorCode::invalid_argument) {
      return fail(checked.error().code,
                  "{} (data_parallel_attention: {} replicas of tensor size {} share it)",
                  checked.error().message, mesh.replicas_per_domain(), tensor_size);
    }
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
