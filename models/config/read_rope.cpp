#include <algorithm>
#include <cmath>

#include "models/config/read_parts.hpp"

namespace troupe {

namespace {

constexpr double most = 1e9;

Result<double> read_factor(const Fields& fields) {
  TROUPE_TRY(const auto factor, fields.optional_number({"factor"}, 1.0, most));
  if (!factor) return fail(ErrorCode::corrupt_data, "{}: missing key factor", fields.where());
  return *factor;
}

Result<Llama3RopeScaling> read_llama3(const Fields& fields) {
  Llama3RopeScaling scaling;
  TROUPE_TRY(scaling.factor, fields.number_or({"factor"}, 1.0, most, scaling.factor));
  TROUPE_TRY(scaling.low_factor,
             fields.number_or({"low_freq_factor"}, 1e-3, most, scaling.low_factor));
  TROUPE_TRY(scaling.high_factor,
             fields.number_or({"high_freq_factor"}, 1e-3, most, scaling.high_factor));
  TROUPE_TRY(scaling.original_positions, fields.number_or({"original_max_position_embeddings"}, 1.0,
                                                          most, scaling.original_positions));
  if (scaling.high_factor <= scaling.low_factor) {
    return fail(ErrorCode::corrupt_data,
                "{}: high_freq_factor: expected more than low_freq_factor {}, found {}",
                fields.where(), scaling.low_factor, scaling.high_factor);
  }
  return scaling;
}

/// YaRN's growth of attention with the context (Peng et al. 2023, equation 22).
double yarn_growth(double factor, double weight) { return 0.1 * weight * std::log(factor) + 1.0; }

Result<YarnRopeScaling> read_yarn(const Fields& fields, std::int64_t stated_positions) {
  YarnRopeScaling scaling;
  TROUPE_TRY(scaling.factor, read_factor(fields));
  TROUPE_TRY(scaling.original_positions,
             fields.number_or({"original_max_position_embeddings"}, 1.0, most,
                              static_cast<double>(stated_positions)));
  TROUPE_TRY(scaling.fast_turns, fields.number_or({"beta_fast"}, 1e-6, most, scaling.fast_turns));
  TROUPE_TRY(scaling.slow_turns, fields.number_or({"beta_slow"}, 1e-6, most, scaling.slow_turns));
  TROUPE_TRY(scaling.whole_dimensions, fields.boolean_or({"truncate"}, true));
  TROUPE_TRY(const double all, fields.number_or({"mscale_all_dim"}, 0.0, most, 0.0));
  TROUPE_TRY(const double own, fields.number_or({"mscale"}, 0.0, most, 0.0));
  const double growth = all != 0.0 && own != 0.0
                            ? yarn_growth(scaling.factor, own) / yarn_growth(scaling.factor, all)
                            : yarn_growth(scaling.factor, 1.0);
  TROUPE_TRY(scaling.table_factor, fields.number_or({"attention_factor"}, 0.0, most, growth));
  const double scale = yarn_growth(scaling.factor, all);
  scaling.attention_factor = scale * scale;
  return scaling;
}

Result<std::vector<double>> read_factors(const Fields& fields, std::string_view key,
                                         std::int64_t count) {
  const nlohmann::json* found = fields.find({key});
  std::vector<double> factors;
  if (found != nullptr && found->is_array()) {
    for (const nlohmann::json& factor : *found) {
      if (factor.is_number()) factors.push_back(factor.get<double>());
    }
  }
  const bool fine = std::ranges::all_of(factors, [](double x) { return x > 0.0 && x <= most; });
  if (fine && static_cast<std::int64_t>(factors.size()) == count) return factors;
  return fail(ErrorCode::corrupt_data, "{}: {}: expected a list of {} positive numbers",
              fields.where(), key, count);
}

/// The model that a rope belongs to.
struct RopeOwner {
  const Fields& file;               ///< has rope_scaling and, for LongRoPE, the original length
  std::int64_t stated_positions;    ///< max_position_embeddings
  std::int64_t original_positions;  ///< LongRoPE's where the file has none
  std::int64_t rotated_dim;
};

Result<LongRopeScaling> read_long_rope(const Fields& fields, const RopeOwner& model) {
  LongRopeScaling scaling;
  TROUPE_TRY(scaling.short_factors, read_factors(fields, "short_factor", model.rotated_dim / 2));
  TROUPE_TRY(scaling.long_factors, read_factors(fields, "long_factor", model.rotated_dim / 2));
  TROUPE_TRY(const double inside, fields.number_or({"original_max_position_embeddings"}, 2.0, most,
                                                   static_cast<double>(model.original_positions)));
  TROUPE_TRY(scaling.original_positions,
             model.file.number_or({"original_max_position_embeddings"}, 2.0, most, inside));
  const double factor = static_cast<double>(model.stated_positions) / scaling.original_positions;
  const double growth =
      factor <= 1.0 ? 1.0
                    : std::sqrt(1.0 + std::log(factor) / std::log(scaling.original_positions));
  TROUPE_TRY(scaling.table_factor, fields.number_or({"attention_factor"}, 0.0, most, growth));
  return scaling;
}

/// Reads one rope from rope_parameters or rope_scaling; `theta`: where it has none.
Result<RopeConfig> read_rope(const Fields& inner, double theta, const RopeOwner& model) {
  RopeConfig rope;
  TROUPE_TRY(const std::string type, inner.string_or({"rope_type", "type"}, "default"));
  if (type == "linear") {
    TROUPE_TRY(const double factor, read_factor(inner));
    rope.scaling = LinearRopeScaling{factor};
  } else if (type == "dynamic") {
    TROUPE_TRY(const double factor, read_factor(inner));
    rope.scaling = DynamicRopeScaling{factor, static_cast<double>(model.stated_positions)};
  } else if (type == "yarn") {
    TROUPE_TRY(rope.scaling, read_yarn(inner, model.stated_positions));
  } else if (type == "llama3") {
    TROUPE_TRY(rope.scaling, read_llama3(inner));
  } else if (type == "longrope" || type == "su") {
    TROUPE_TRY(rope.scaling, read_long_rope(inner, model));
  } else if (type != "default") {
    return inner.unsupported("rope_type", type, "default, linear, dynamic, yarn, llama3, longrope");
  }
  TROUPE_TRY(rope.theta, inner.number_or({"rope_theta"}, 1.0, 1e12, theta));
  return rope;
}

/// Sets the rotated part of a head. transformers 4 has the factor in the file itself, 5 inside
/// rope_parameters.
Result<void> read_rotary_part(const Fields& fields, const Fields& inner, const ConfigRules& rules,
                              ModelConfig& config) {
  TROUPE_TRY(const double outside, fields.number_or({"partial_rotary_factor"}, 0.0, 1.0,
                                                    rules.rotary_part.value_or(1.0)));
  TROUPE_TRY(const double part, inner.number_or({"partial_rotary_factor"}, 0.0, 1.0, outside));
  if (part == 1.0) return {};
  if (!rules.rotary_part) {
    return fields.unsupported("partial_rotary_factor", fmt::to_string(part), "1");
  }
  config.rotary_dim = static_cast<std::int64_t>(static_cast<double>(config.head_dim) * part);
  if (config.rotary_dim >= 2 && config.rotary_dim % 2 == 0) return {};
  return fail(ErrorCode::corrupt_data,
              "{}: partial_rotary_factor {}: expected an even number of a head's {} elements",
              fields.where(), part, config.head_dim);
}

}  // namespace

Result<void> read_ropes(const Fields& fields, const ConfigRules& rules,
                        std::int64_t stated_positions, ModelConfig& config) {
  // transformers 4 has rope_theta beside rope_scaling, 5 has both inside rope_parameters, which may
  // have one object for each type of layer.
  const bool mentioned = fields.mentions("rope_parameters") || fields.mentions("rope_scaling");
  const nlohmann::json absent = mentioned || rules.default_rope_scaling.empty()
                                    ? nlohmann::json::object()
                                    : nlohmann::json::parse(rules.default_rope_scaling);
  const nlohmann::json* parameters = fields.find({"rope_parameters", "rope_scaling"});
  if (parameters == nullptr) parameters = &absent;
  if (!parameters->is_object()) {
    return fail(ErrorCode::corrupt_data, "{}: rope parameters: expected an object, found {}",
                fields.where(), parameters->type_name());
  }
  const Fields all(*parameters, fields.where());
  const bool by_layer_type = all.find({"full_attention"}) != nullptr;
  TROUPE_TRY(const Fields own, all.nested(by_layer_type ? "full_attention" : ""));
  TROUPE_CHECK(read_rotary_part(fields, own, rules, config));
  config.interleaved_rope = rules.interleaved_rope;
  TROUPE_TRY(const double theta, fields.number_or({"rope_theta"}, 1.0, 1e12, rules.rope_theta));
  const RopeOwner model{fields, stated_positions,
                        rules.original_positions > 0 ? rules.original_positions : stated_positions,
                        config.rotated_dim()};
  TROUPE_TRY(config.rope, read_rope(own, theta, model));
  if (!rules.windows || rules.windows->rope_theta == 0.0) return {};
  TROUPE_TRY(const double window_theta,
             fields.number_or({"rope_local_base_freq"}, 1.0, 1e12, rules.windows->rope_theta));
  config.window_rope = RopeConfig{.theta = window_theta};
  if (!by_layer_type) return {};
  TROUPE_TRY(const Fields of_windows, all.nested("sliding_attention"));
  TROUPE_TRY(config.window_rope, read_rope(of_windows, window_theta, model));
  return {};
}

std::int64_t longest_sequence(const RopeConfig& rope, std::int64_t stated_positions) {
  auto longest = static_cast<double>(stated_positions);
  if (const auto* linear = std::get_if<LinearRopeScaling>(&rope.scaling)) {
    longest *= linear->factor;
  } else if (const auto* dynamic = std::get_if<DynamicRopeScaling>(&rope.scaling)) {
    longest *= dynamic->factor;
  } else if (const auto* yarn = std::get_if<YarnRopeScaling>(&rope.scaling)) {
    longest = std::max(longest, yarn->original_positions * yarn->factor);
  }
  return static_cast<std::int64_t>(std::min(longest, static_cast<double>(max_positions)));
}

}  // namespace troupe
