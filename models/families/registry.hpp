#pragma once

#include "models/families/family.hpp"

namespace troupe {

// Each is defined in a file of this folder and is one of families().
extern const Family llama_family;
extern const Family mistral_family;
extern const Family mixtral_family;
extern const Family qwen2_family;
extern const Family qwen3_family;
extern const Family qwen3_moe_family;
extern const Family deepseek_v3_family;

}  // namespace troupe
