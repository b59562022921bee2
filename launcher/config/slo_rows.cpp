#include "launcher/config/schema_rows.hpp"

namespace troupe::schema {
namespace {

/// A target for answers, in milliseconds.
KeySpec limit(KeySpec spec) {
  spec.type = ValueType::number;
  spec.default_value = "off";
  spec.allows_auto = true;
  spec.auto_word = "off";
  spec.minimum = 0.001;
  spec.maximum = 1e9;
  return spec;
}

}  // namespace

std::vector<KeySpec> slo_rows() {
  return {
      row<&C::slo, &C::Slo::ttft_ms>(
          limit({.key = "slo.ttft_ms",
                 .type = ValueType::number,
                 .default_value = "",
                 .doc = "within how many milliseconds an answer's first token is to come",
                 .reference = "Objectives change nothing about how requests are served: they are "
                              "what the report's goodput counts by, the answers that kept all of "
                              "them ([operations](operations.md#reports)). This one is for the "
                              "time from the engine's taking a request to its first token."})),
      row<&C::slo, &C::Slo::itl_ms>(
          limit({.key = "slo.itl_ms",
                 .type = ValueType::number,
                 .default_value = "",
                 .doc = "how many milliseconds may lie between an answer's tokens, in the mean",
                 .reference = "For the mean time between an answer's tokens after the first."})),
      row<&C::slo, &C::Slo::e2e_ms>(
          limit({.key = "slo.e2e_ms",
                 .type = ValueType::number,
                 .default_value = "",
                 .doc = "within how many milliseconds an answer is to be whole",
                 .reference = "For the time from the engine's taking a request to its last "
                              "token."})),
  };
}

}  // namespace troupe::schema
