#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "parallel/mesh/mesh.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/random_codes.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::golden {

/// A checkpoint whose experts are random codes.
struct CodedExpertsCase {
  std::string name;         ///< in names of tests
  CodesCase codes;          ///< how each matrix of an expert is stored
  std::int64_t width = 96;  ///< of an expert
};

/// Experts in each format that keeps codes of experts, of widths whose halves begin inside a group
/// or a block, and whose last groups are short.
std::vector<CodedExpertsCase> coded_experts_cases();

/// Writes qwen3moe-a with other experts into the folder. The same bytes each time.
Result<void> write_coded_experts(const CodedExpertsCase& experts,
                                 const tests::TemporaryFolder& folder);

/// Logits of every row of a prompt of `whole` tokens that is fed at once, then of one of `parts`
/// tokens that is fed three at a time.
Result<std::vector<float>> logits_of_prompts(Runner& runner, int whole, int parts);

/// Ways to spread experts over ranks.
struct ExpertArrangement {
  const char* name;
  MeshShape shape;
  int expert_parallel_size = 1;
};

inline const ExpertArrangement expert_arrangements[] = {
    {"tensor 2", {.tensor = 2}},
    {"tensor 4", {.tensor = 4}},
    {"tensor 2, experts over 2", {.tensor = 2}, 2},
    {"tensor 4, experts over 2", {.tensor = 4}, 2},  // splits them, too
    {"data 2, experts over 2", {.data = 2}, 2},
    {"data 2, tensor 2, experts over 2", {.data = 2, .tensor = 2}, 2},
    {"data 2, tensor 2, experts over 4", {.data = 2, .tensor = 2}, 4},
};

}  // namespace troupe::golden
