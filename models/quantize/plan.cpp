#include "models/quantize/plan.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <variant>

#include <fmt/ranges.h>

#include "models/families/family.hpp"
#include "models/layers/weights/parameters.hpp"
#include "models/ops/coded_panels.hpp"
#include "models/ops/fp8_rows.hpp"
#include "models/quantize/kv_scales.hpp"

namespace troupe {
namespace {

constexpr std::int64_t least_group = 16;
constexpr std::int64_t codes_in_word = 8;

bool is_quantizable(Parameter parameter) {
  using enum Parameter;
  return may_be_encoded(parameter) || parameter == latent_up || parameter == expert_gate ||
         parameter == expert_up || parameter == expert_down;
}

bool has_groups(const QuantizationOptions& options) {
  const auto* const codes = std::get_if<QuantizationScheme>(&options.scheme);
  return codes != nullptr && is_grouped(*codes);
}

bool is_w4a16(const QuantizationOptions& options) {
  return options.scheme == CompressionScheme(QuantizationScheme::w4a16);
}

std::int64_t group_for(std::int64_t columns, QuantizationScheme scheme,
                       const QuantizationOptions& options) {
  switch (scheme) {
    case QuantizationScheme::fp8:
    case QuantizationScheme::int8:
      return columns;
    case QuantizationScheme::mxfp4:
      return columns % mxfp4_group_columns == 0 ? mxfp4_group_columns : 0;
    case QuantizationScheme::nvfp4:
      return columns % nvfp4_columns == 0 ? nvfp4_columns : 0;
    case QuantizationScheme::w4a16: {
      if (columns % codes_in_word != 0) return 0;
      if (columns % options.group_columns == 0) return options.group_columns;
      std::int64_t group = least_group;
      if (columns % group != 0 || group > options.group_columns) return 0;
      while (2 * group < options.group_columns && columns % (2 * group) == 0) group *= 2;
      return group;
    }
  }
  return columns;
}

/// The columns of a matrix of `columns` that share a scale, all if there is none; 0: the scheme
/// cannot hold it.
std::int64_t group_for(std::int64_t columns, const QuantizationOptions& options) {
  if (const auto* const codes = std::get_if<QuantizationScheme>(&options.scheme)) {
    return group_for(columns, *codes, options);
  }
  const bool takes_fours = options.scheme == CompressionScheme(SparsityStructure::two_of_four);
  return takes_fours && columns % 4 != 0 ? 0 : columns;
}

/// The columns of a matrix that share a scale; 0: the scheme cannot hold it. The matrices of
/// experts have groups of one size, or none: vLLM refuses others.
std::int64_t group_of(Parameter parameter, const Shape& shape, const ModelConfig& config,
                      const QuantizationOptions& options) {
  if (!has_groups(options) || !is_expert(parameter)) return group_for(shape[1], options);
  return group_for(std::gcd(config.hidden_size, config.moe->intermediate_size), options);
}

/// The first of the parameters that vLLM stacks into one matrix with this one.
Parameter first_of_fused(Parameter parameter) {
  using enum Parameter;
  switch (parameter) {
    case key:
    case value:
      return query;
    case latent_down:
      return query_down;
    case up:
      return gate;
    case shared_up:
      return shared_gate;
    case expert_up:
      return expert_gate;
    default:
      return parameter;
  }
}

}  // namespace

std::string MatrixPlan::module() const {
  constexpr std::string_view suffix = ".weight";
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

CodeGrid grid_of(const MatrixPlan& matrix, const QuantizationOptions& options) {
  return {std::get<QuantizationScheme>(options.scheme), matrix.dtype, options.scales};
}

void MatrixRanges::add(const MatrixPlan& matrix, const Tensor& weights) {
  float& largest = largest_[matrix.fusion];
  largest = std::max(largest, largest_magnitude(weights.span<float>()));
}

CodeGrid MatrixRanges::grid_of(const MatrixPlan& matrix, const QuantizationOptions& options) const {
  const CodeGrid grid = troupe::grid_of(matrix, options);
  const auto found = largest_.find(matrix.fusion);
  return found == largest_.end() ? grid : grid.with_range(found->second);
}

Result<QuantizationPlan> plan_quantization(const ModelConfig& config, const Checkpoint& checkpoint,
                                           const QuantizationOptions& options) {
  if (is_about_kv(options.scheme)) {
    TROUPE_CHECK(check_kv_scales(config, checkpoint));
    return QuantizationPlan();
  }
  if (!checkpoint.quantization().groups.empty()) {
    return fail(ErrorCode::invalid_argument,
                "{} is quantised already ({}): start from the checkpoint in bf16, f16 or f32",
                checkpoint.folder().string(), checkpoint.quantization().describe());
  }
  QuantizationPlan plan;
  std::set<std::string> seen, remarks;
  for (const WeightUse& use : weights_in_use(config, weight_rules_of(config))) {
    const WeightRule& rule = *use.rule;
    const Shape shape = stored_shape(rule, config);
    const std::string name = checkpoint_name(rule, use.layer, use.expert);
    if (!is_quantizable(rule.parameter) || !seen.insert(name).second) continue;
    const std::string pattern = fmt::format("{}{}", rule.prefix, rule.name);
    if (shape.rank() != 2 || !name.ends_with(".weight")) {
      remarks.insert(fmt::format("{} stays as it is: experts in one tensor", pattern));
      continue;
    }
    TROUPE_TRY(const StoredTensor stored, checkpoint.stored_weight(name, shape));
    MatrixPlan matrix{.name = name,
                      .layer = use.layer,
                      .shape = shape,
                      .dtype = stored.view.dtype(),
                      .group = group_of(rule.parameter, shape, config, options),
                      .fusion = fmt::format("{}.{}.{}", use.layer, use.expert,
                                            static_cast<int>(first_of_fused(rule.parameter)))};
    const std::string module = matrix.module();
    if (std::ranges::any_of(options.ignored, [&](const auto& p) { return p.is_about(module); })) {
      continue;
    }
    const std::string columns = is_expert(rule.parameter)
                                    ? fmt::format("the {} and {} columns of experts",
                                                  config.hidden_size, config.moe->intermediate_size)
                                    : fmt::format("its {} columns", shape[1]);
    if (matrix.group == 0) {
      remarks.insert(
          fmt::format("{} stays as it is: {} cannot be divided into groups", pattern, columns));
      continue;
    }
    if (is_w4a16(options) && matrix.group != options.group_columns) {
      remarks.insert(fmt::format("{} has groups of {}: {} are no multiple of {}", pattern,
                                 matrix.group, columns, options.group_columns));
    }
    if (is_w4a16(options) && matrix.group != 32 && matrix.group != 64 && matrix.group != 128) {
      remarks.insert(
          fmt::format("groups of {}: vLLM has kernels for 32, 64 and 128 only; Troupe reads all",
                      matrix.group));
    }
    plan.matrices.emplace(name, std::move(matrix));
  }
  if (config.moe && options.scheme == CompressionScheme(QuantizationScheme::int8)) {
    remarks.insert("transformers (5.17) does not read int8 experts; vLLM and Troupe do");
  }
  if (config.moe && options.scheme == CompressionScheme(QuantizationScheme::nvfp4)) {
    remarks.insert(
        "transformers (5.17) ignores the scale of a whole matrix of nvfp4 experts; Troupe does "
        "not");
  }
  plan.remarks.assign(remarks.begin(), remarks.end());
  if (!plan.matrices.empty()) return plan;
  return fail(ErrorCode::invalid_argument, "{}: nothing to quantise is left{}{}",
              checkpoint.folder().string(), plan.remarks.empty() ? "; see --ignore" : ": ",
              fmt::join(plan.remarks, "; "));
}

}  // namespace troupe
