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
extern const Family qwen2_moe_family;
extern const Family deepseek_v2_family;
extern const Family deepseek_v3_family;
extern const Family deepseek_v32_family;
extern const Family gemma2_family;
extern const Family gemma3_family;
extern const Family gemma3_text_family;
extern const Family gpt_oss_family;
extern const Family phi3_family;
extern const Family olmo2_family;
extern const Family granite_family;
extern const Family glm_family;
extern const Family glm4_family;
extern const Family glm4_moe_family;
extern const Family command_r_family;
extern const Family starcoder2_family;
extern const Family falcon_family;

}  // namespace troupe
