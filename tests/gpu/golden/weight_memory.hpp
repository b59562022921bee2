#pragma once

#include <filesystem>
#include <utility>

#include <gtest/gtest.h>

#include "models/families/family.hpp"
#include "models/model/footprint.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {

/// Expects that a checkpoint in bf16, or in codes that are made of it at load, takes the memory on
/// one GPU that its footprint says.
inline void expect_memory_of_footprint(const std::filesystem::path& folder,
                                       WeightEncoding encoding = WeightEncoding::plain) {
  REQUIRE_OK(const auto config, load_model_config(folder));
  REQUIRE_OK(const auto checkpoint, Checkpoint::open(folder));
  REQUIRE_OK(auto ops, make_golden_ops(DType::bf16, 0, false, encoding));
  REQUIRE_OK(const auto loaded,
             load(folder, DType::bf16, {}, std::move(ops), false, {}, {}, encoding));
  REQUIRE_OK(const Mesh mesh, Mesh::create({}, 1, false));
  REQUIRE_OK(const auto footprint, rank_footprint(config, checkpoint, mesh, 0,
                                                  {.compute = DType::bf16,
                                                   .encoding = encoding,
                                                   .kv_dtype = DType::bf16,
                                                   .on_gpu = true,
                                                   .gpu_codes = true,
                                                   .shares_tables = true}));
  EXPECT_EQ(footprint.weight_bytes, loaded.model->weight_bytes());
}

}  // namespace troupe::golden
