#include "models/families/family.hpp"

#include <algorithm>

#include "models/families/deepseek_v3.hpp"
#include "models/families/llama.hpp"
#include "models/families/mixtral.hpp"
#include "models/families/qwen3.hpp"

namespace troupe {

const Family& family_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::llama:
    case Architecture::mistral:
    case Architecture::qwen2:
      return llama_family();
    case Architecture::mixtral:
      return mixtral_family();
    case Architecture::deepseek_v3:
      return deepseek_v3_family();
    case Architecture::qwen3:
    case Architecture::qwen3_moe:
      break;
  }
  return qwen3_family();
}

bool has_weight(const Family& family, Parameter parameter) {
  return std::ranges::any_of(family.weights,
                             [=](const WeightRule& rule) { return rule.parameter == parameter; });
}

}  // namespace troupe
