#include "models/model/footprint.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "models/families/family.hpp"
#include "models/layers/attention/attention_shape.hpp"
#include "models/layers/attention/head_projection.hpp"
#include "models/layers/attention/stage_caches.hpp"
#include "models/layers/model_limits.hpp"
#include "models/layers/weights/parameters.hpp"
#include "models/layers/weights/weights.hpp"
#include "models/model/stages.hpp"
#include "models/ops/coded_matrix.hpp"
#include "models/ops/coded_panels.hpp"
#include "models/ops/expert_panels.hpp"
#include "models/ops/fp8_rows.hpp"
#include "parallel/experts/expert_share.hpp"

namespace troupe {

namespace {

/// The first of the parameters that layers stack into one matrix.
Parameter stack_of(Parameter parameter, const ModelConfig& config) {
  switch (parameter) {
    case Parameter::latent_down:
      return config.latent->query_rank > 0 ? parameter : Parameter::query;
    case Parameter::key:
    case Parameter::value:
      return Parameter::query;
    case Parameter::up:
      return Parameter::gate;
    case Parameter::expert_up:
      return Parameter::expert_gate;
    case Parameter::shared_up:
      return Parameter::shared_gate;
    default:
      return parameter;
  }
}

/// Adds up the bytes of one rank's weights, stack by stack.
class WeightBytes {
 public:
  WeightBytes(const ModelConfig& config, const Checkpoint& checkpoint,
              const FootprintOptions& options, ShardOf dense)
      : config_(config), checkpoint_(checkpoint), options_(options), dense_(dense) {}

  /// Adds a vector, or rows of the matrix that is stored under stack_of.
  Result<void> add(const WeightUse& use, ShardOf shard) {
    const WeightRule& rule = *use.rule;
    const std::string name = checkpoint_name(rule, use.layer, use.expert);
    TROUPE_TRY(const StoredTensor stored,
               checkpoint_.stored_weight(name, stored_shape(rule, config_)));
    const Shape shape = shape_of(rule.parameter, config_);
    if (rule.parameter == Parameter::shared_router) {  // held like a vector
      bytes_ += shape[1] * element_bytes(DType::f32);
      return {};
    }
    const bool is_vector = shape.rank() == 1;
    TROUPE_TRY(const WeightShard part,
               shard_weight(name, rule.shard, shape[0], is_vector ? 1 : shape[1],
                            head_layout(rule.parameter, config_), shard));
    if (is_vector) {
      bytes_ += part.rows.count * element_bytes(DType::f32);
      return {};
    }
    if (rule.parameter == Parameter::latent_up) {
      add_heads(part.rows.count, stored.dtype() == DType::bf16);
      return {};
    }
    Stack& stack = stacks_[{use.layer, stack_of(rule.parameter, config_), use.expert}];
    const bool is_by_columns = rule.stored_as == StoredAs::expert_columns;
    stack.encoding = is_by_columns ? WeightEncoding::plain : encoding_of(rule.parameter);
    stack.is_grouped = is_expert(rule.parameter);
    TROUPE_TRY(stack.segments, segments_of(rule, name, config_, shard.size));
    stack.rows += part.rows.count;
    stack.columns = part.cols.count;
    stack.all_bf16 = stack.all_bf16 && stored.dtype() == DType::bf16;
    stack.parts.push_back({stored, part.rows, part.cols});
    if (is_decoded(rule.parameter)) stack.parts.back().matrix.format = nullptr;
    return {};
  }

  /// Adds this rank's rows of a [vocab, hidden] matrix, in multiples of `panel_rows`: the head's,
  /// or those of a table.
  Result<void> add_vocabulary(const WeightRule& rule, std::int64_t panel_rows, bool is_head) {
    TROUPE_TRY(const StoredTensor weight,
               checkpoint_.stored_weight(checkpoint_name(rule, 0, 0), stored_shape(rule, config_)));
    const std::int64_t rows = ceil_slice(config_.vocab_size, {0, dense_.size}).count;
    Stack stack{rows, config_.hidden_size, weight.dtype() == DType::bf16};
    if (is_head) {
      stack.encoding = encoding_of(rule.parameter);
      stack.parts.push_back({weight, {0, rows}, {0, config_.hidden_size}});
    }
    bytes_ += matrix_bytes(stack, panel_rows);
    decodes_ = decodes_ || decodes(stack);
    return {};
  }

  std::size_t total() const {
    std::int64_t total = bytes_;
    for (const auto& [place, stack] : stacks_) total += matrix_bytes(stack, options_.panel_rows);
    return static_cast<std::size_t>(total);
  }

  /// See RankFootprint::decoded_bytes.
  std::size_t decoded() const {
    const bool any = decodes_ || std::ranges::any_of(stacks_, [&](const auto& stack) {
                       return decodes(stack.second);
                     });
    return any ? decoded_codes_bytes : 0;
  }

 private:
  struct Stack {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    bool all_bf16 = true;  ///< in the checkpoint
    WeightEncoding encoding = WeightEncoding::plain;
    int segments = 1;
    bool is_grouped = false;             ///< of experts
    std::vector<StoredPart> parts = {};  ///< in any order
  };

  WeightEncoding encoding_of(Parameter parameter) const {
    return encoding_for(parameter, options_.encoding, !checkpoint_.quantization().groups.empty(),
                        options_.quantize_head);
  }
  /// True for parameters that layers rearrange, so that codes become numbers.
  bool is_decoded(Parameter parameter) const {
    using enum Parameter;
    if (config_.latent) {
      return parameter == query || parameter == query_up || parameter == latent_down;
    }
    const bool is_projection = parameter == query || parameter == key || parameter == value;
    return is_projection && rearranges(config_);
  }

  /// Adds the rows of Parameter::latent_up, which LatentAttention holds as two matrices for each
  /// head: of keys and of values.
  void add_heads(std::int64_t rows, bool bf16) {
    const LatentConfig& latent = *config_.latent;
    const std::int64_t heads = rows / (latent.unrotated_dim + latent.value_dim);
    const auto held = [&](std::int64_t n, std::int64_t k) {
      return heads * matrix_bytes({n, k, bf16}, options_.panel_rows);
    };
    bytes_ += held(latent.rank, latent.unrotated_dim) + held(latent.value_dim, latent.rank);
  }

  static std::int64_t element_bytes(DType dtype) {
    return static_cast<std::int64_t>(size_of(dtype));
  }

  std::int64_t matrix_bytes(const Stack& stack, std::int64_t panel_rows) const {
    const std::int64_t held = (stack.rows + panel_rows - 1) / panel_rows * panel_rows;
    if (rounds_rows(stack)) {
      const std::int64_t units = (stack.columns + unit_columns - 1) / unit_columns;
      const std::int64_t columns = options_.widens_codes ? units * unit_columns : stack.columns;
      return held * (columns + element_bytes(DType::f32));
    }
    if (const auto panels = panels_of(stack)) return panels->code_bytes() + panels->scale_bytes();
    if (const auto form = options_.on_gpu ? std::nullopt : form_of(stack)) {
      const auto runs = code_runs(*form, stack.columns, stack.segments);
      return code_bytes(*form, runs, held) + scale_bytes(*form, runs, held);
    }
    const DType dtype = stack.all_bf16 ? DType::bf16 : options_.compute;
    return held * stack.columns * element_bytes(dtype);
  }

  /// On a GPU: in codes that are multiplied with codes; see CudaWeightOps.
  bool rounds_rows(const Stack& stack) const {
    if (!options_.on_gpu || !fp8_fits(stack.rows, stack.columns)) return false;
    if (stack.encoding == WeightEncoding::fp8) return true;
    const auto form = form_of(stack);
    return options_.gpu_codes && !stack.is_grouped && form && form->rounds_whole_rows();
  }

  /// True for matrices that need the memory in which codes become bf16, and 8-bit ones are
  /// rearranged: not for those of experts that are in panels from the first.
  bool decodes(const Stack& stack) const {
    if (rounds_rows(stack)) return options_.widens_codes;
    return !stack.is_grouped && panels_of(stack).has_value();
  }

  /// On a GPU: see CudaWeightOps.
  std::optional<CodedPanels> panels_of(const Stack& stack) const {
    const bool may_be = options_.on_gpu && options_.gpu_codes;
    if (!may_be || stack.encoding == WeightEncoding::fp8) return std::nullopt;
    const StoredMatrix matrix{.parts = stack.parts, .rows = stack.rows, .columns = stack.columns};
    if (stack.is_grouped) return expert_panels({&matrix, 1}, stack.encoding).panels;
    return coded_panels(matrix, stack.encoding).panels;
  }

  static std::optional<CodedForm> form_of(const Stack& stack) {
    return coded_form({.parts = stack.parts, .rows = stack.rows, .columns = stack.columns},
                      stack.encoding)
        .form;
  }

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  const FootprintOptions& options_;
  ShardOf dense_;
  std::int64_t bytes_ = 0;
  bool decodes_ = false;  // of what is not in stacks_
  std::map<std::tuple<std::int64_t, Parameter, std::int64_t>, Stack> stacks_;
};

bool holds(const Slice& slice, std::int64_t i) { return i >= slice.begin && i < slice.end(); }

/// The layers and experts of a rank; bytes are left zero.
Result<RankFootprint> place_of(const ModelConfig& config, const Mesh& mesh, int rank, bool on_gpu) {
  RankFootprint place;
  TROUPE_TRY(const auto stages, stage_layers(config, mesh.shape().pipeline, on_gpu));
  place.layers = stages[static_cast<std::size_t>(mesh.coordinates(rank).stage)];
  if (!config.moe) return place;
  TROUPE_CHECK(check_divides("expert_parallel_size", mesh.expert_parallel_size(), "the experts",
                             config.moe->experts));
  const ExpertShare share = expert_share(config.moe->experts, mesh, rank);
  place.experts = share.experts;
  place.expert_part = share.part.rank;
  place.expert_parts = share.part.size;
  return place;
}

}  // namespace

Result<RankFootprint> rank_footprint(const ModelConfig& config, const Checkpoint& checkpoint,
                                     const Mesh& mesh, int rank, const FootprintOptions& options) {
  TROUPE_TRY(RankFootprint footprint, place_of(config, mesh, rank, options.on_gpu));
  const MeshCoordinates at = mesh.coordinates(rank);
  const bool first = at.stage == 0;
  const bool last = at.stage == mesh.shape().pipeline - 1;
  const ShardOf shard{at.tensor, mesh.shape().tensor};
  const ShardOf expert_shard{footprint.expert_part, footprint.expert_parts};

  const ShardOf dense{mesh.dense_index(rank), mesh.dense_size()};
  WeightBytes weights(config, checkpoint, options, dense);
  for (const WeightUse& use : weights_in_use(config, weight_rules_of(config))) {
    const Parameter parameter = use.rule->parameter;
    if (parameter == Parameter::expert_down_bias) {  // every rank has those of all experts
      if (holds(footprint.layers, use.layer)) TROUPE_CHECK(weights.add(use, {0, 1}));
    } else if (is_expert(parameter)) {
      if (!holds(footprint.layers, use.layer) || !holds(footprint.experts, use.expert)) continue;
      TROUPE_CHECK(weights.add(use, expert_shard));
    } else if (!is_global(parameter)) {
      if (!holds(footprint.layers, use.layer)) continue;
      TROUPE_CHECK(weights.add(use, is_dense(parameter) ? dense : shard));
    } else if (parameter == Parameter::final_norm || parameter == Parameter::final_norm_bias) {
      if (last) TROUPE_CHECK(weights.add(use, shard));
    } else {
      const bool is_embedding = parameter == Parameter::embedding;
      const bool is_head = !is_embedding || config.tie_word_embeddings;
      if (is_embedding && first) TROUPE_CHECK(weights.add_vocabulary(*use.rule, 1, false));
      const bool shares = is_embedding && first && options.shares_tables;
      if (is_head && last && !shares) {
        TROUPE_CHECK(weights.add_vocabulary(*use.rule, options.panel_rows, true));
      }
    }
  }
  footprint.weight_bytes = weights.total();
  footprint.decoded_bytes = weights.decoded();

  const KvPolicy& policy = options.kv_policy;
  std::int64_t positions =
      options.max_positions > 0 ? options.max_positions : config.max_position_embeddings;
  if (policy.rotates_by_entry()) positions = policy.most_entries(positions, 0);
  const std::int64_t tables = config.window_rope ? 2 : 1;
  footprint.rope_bytes =
      static_cast<std::size_t>(tables * positions * config.rope_width()) * size_of(DType::f32);

  TROUPE_TRY(const AttentionShape attention,
             attention_shape(config, 0, head_shard(config, mesh, rank)));
  const std::vector<KvResidual> tensors = cache_residuals(
      stage_caches(config, footprint.layers), footprint.layers.begin, options.kv_residuals);
  const DType index = index_dtype_of(options.kv_dtype, options.compute);
  footprint.kv_bytes_per_block =
      static_cast<std::size_t>(options.block_size) *
      kv_bytes_per_token(attention, tensors, options.kv_dtype, index, policy);
  return footprint;
}

}  // namespace troupe
