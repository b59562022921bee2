#include "models/families/family.hpp"

#include "models/families/llama.hpp"
#include "models/families/qwen3.hpp"

namespace troupe {

const Family& family_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::llama:
      return llama_family();
    default:
      break;
  }
  return qwen3_family();
}

}  // namespace troupe
