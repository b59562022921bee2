#include "launcher/job/mesh_table.hpp"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::HasSubstr;

TEST(MeshTable, tells_where_each_rank_is_and_what_it_holds) {
  const auto mesh = Mesh::create({.data = 1, .pipeline = 2, .context = 1, .tensor = 2}, 2);
  ASSERT_TRUE(mesh.ok()) << mesh.error().message;
  const std::vector<RankFootprint> ranks = {
      {.layers = {0, 3}, .experts = {0, 8}, .weight_bytes = 4'400'000, .kv_bytes_per_block = 1024},
      {.layers = {0, 3}, .experts = {8, 8}, .weight_bytes = 4'400'000, .kv_bytes_per_block = 1024},
      {.layers = {3, 1}, .experts = {0, 8}, .weight_bytes = 2048, .kv_bytes_per_block = 512},
      {.layers = {3, 1}, .experts = {8, 8}, .weight_bytes = 2048, .kv_bytes_per_block = 512}};
  EXPECT_EQ(mesh_table(*mesh, ranks, 10),
            "rank  node   device  data stage tensor  layers  experts       weights        KV\n"
            "0     node0  0       0    0     0       0-2     0-7          4.20 MiB  10.0 KiB\n"
            "1     node0  1       0    0     1       0-2     8-15         4.20 MiB  10.0 KiB\n"
            "2     node0  2       0    1     0       3       0-7          2.00 KiB  5.00 KiB\n"
            "3     node0  3       0    1     1       3       8-15         2.00 KiB  5.00 KiB\n"
            "total                                                        8.40 MiB  30.0 KiB\n");
}

TEST(MeshTable, tells_context_ranks_where_there_are_some) {
  const auto mesh = Mesh::create({.context = 2, .tensor = 2});
  const std::string table = mesh_table(*mesh, std::vector<RankFootprint>(4), 1);
  EXPECT_THAT(table, HasSubstr("data stage ctx/tp  layers"));
  EXPECT_THAT(table, HasSubstr("2     node0  2       0    0     1/0     -"));
}

TEST(MeshTable, tells_parts_of_experts_and_models_without_any) {
  const auto mesh = Mesh::create({.tensor = 2});
  RankFootprint first{.layers = {0, 4}, .experts = {0, 16}, .expert_parts = 2};
  RankFootprint second = first;
  second.expert_part = 1;
  const std::string table = mesh_table(*mesh, std::vector{first, second}, 1);
  EXPECT_THAT(table, HasSubstr("0-15 1/2"));
  EXPECT_THAT(table, HasSubstr("0-15 2/2"));
  EXPECT_THAT(mesh_table({}, std::vector{RankFootprint{.layers = {0, 4}}}, 1),
              HasSubstr("0-3     -  "));
}

TEST(MeshTable, fits_80_columns_however_large_the_model) {
  const auto mesh = Mesh::create({.data = 100, .pipeline = 10, .context = 1, .tensor = 8}, 4);
  ASSERT_TRUE(mesh.ok()) << mesh.error().message;
  const RankFootprint rank{.layers = {110, 12},
                           .experts = {384, 128},
                           .expert_part = 1,
                           .expert_parts = 2,
                           .weight_bytes = std::size_t{1023} << 40,
                           .kv_bytes_per_block = std::size_t{1023} << 20};
  const std::vector<RankFootprint> ranks(8000, rank);
  std::istringstream lines(mesh_table(*mesh, ranks, 1 << 20));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) ASSERT_LE(line.size(), 80U) << line;
  EXPECT_EQ(count, 8002);
}

}  // namespace
}  // namespace troupe
