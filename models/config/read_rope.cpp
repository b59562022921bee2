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

}  // namespace

Result<RopeConfig> read_rope(const Fields& fields, std::int64_t stated_positions) {
  RopeConfig rope;
  // transformers 4 has rope_theta beside rope_scaling, 5 has both inside rope_parameters.
  TROUPE_TRY(rope.theta, fields.number_or({"rope_theta"}, 1.0, 1e12, rope.theta));
  const nlohmann::json* parameters = fields.find({"rope_parameters", "rope_scaling"});
  if (parameters == nullptr) return rope;
  if (!parameters->is_object()) {
    return fail(ErrorCode::corrupt_data, "{}: rope parameters: expected an object, found {}",
                fields.where(), parameters->type_name());
  }
  const Fields inner(*parameters, fields.where());
  TROUPE_TRY(const std::string type, inner.string_or({"rope_type", "type"}, "default"));
  if (type == "linear") {
    TROUPE_TRY(const double factor, read_factor(inner));
    rope.scaling = LinearRopeScaling{factor};
  } else if (type == "dynamic") {
    TROUPE_TRY(const double factor, read_factor(inner));
    rope.scaling = DynamicRopeScaling{factor, static_cast<double>(stated_positions)};
  } else if (type == "yarn") {
    TROUPE_TRY(rope.scaling, read_yarn(inner, stated_positions));
  } else if (type == "llama3") {
    TROUPE_TRY(rope.scaling, read_llama3(inner));
  } else if (type != "default") {
    return fields.unsupported("rope_type", type, "default, linear, dynamic, yarn, llama3");
  }
  TROUPE_TRY(const double part, inner.number_or({"partial_rotary_factor"}, 0.0, 1.0, 1.0));
  if (part != 1.0) {
    return fields.unsupported("partial_rotary_factor", fmt::to_string(part), "1");
  }
  TROUPE_TRY(rope.theta, inner.number_or({"rope_theta"}, 1.0, 1e12, rope.theta));
  return rope;
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
