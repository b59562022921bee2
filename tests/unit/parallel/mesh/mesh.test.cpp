#include "parallel/mesh/mesh.hpp"

#include <map>
#include <set>

#include <gtest/gtest.h>

namespace troupe {
namespace {

Mesh make(MeshShape shape, int experts = 1) {
  auto mesh = Mesh::create(shape, experts);
  EXPECT_TRUE(mesh.ok()) << mesh.error().message;
  return *mesh;
}

std::string refusal(MeshShape shape, int experts) {
  const auto mesh = Mesh::create(shape, experts);
  return mesh.ok() ? "accepted" : mesh.error().message;
}

using Ranks = std::vector<int>;

TEST(Mesh, numbers_ranks_with_tensor_fastest_then_context_stage_and_data) {
  const Mesh mesh = make({.data = 2, .pipeline = 3, .context = 2, .tensor = 4});
  EXPECT_EQ(mesh.world_size(), 48);
  EXPECT_EQ(mesh.coordinates(1), (MeshCoordinates{0, 0, 0, 1}));
  EXPECT_EQ(mesh.coordinates(4), (MeshCoordinates{0, 0, 1, 0}));
  EXPECT_EQ(mesh.coordinates(8), (MeshCoordinates{0, 1, 0, 0}));
  EXPECT_EQ(mesh.coordinates(24), (MeshCoordinates{1, 0, 0, 0}));
  EXPECT_EQ(mesh.describe(29), "data 1, stage 0, context 1, tensor 1");
  for (int rank = 0; rank < 48; ++rank) EXPECT_EQ(mesh.rank(mesh.coordinates(rank)), rank);
}

TEST(Mesh, groups_hold_the_ranks_that_differ_in_one_coordinate) {
  const Mesh mesh = make({.data = 2, .pipeline = 2, .context = 1, .tensor = 2});
  EXPECT_EQ(mesh.group(MeshDimension::tensor, 3), (Ranks{2, 3}));
  EXPECT_EQ(mesh.group(MeshDimension::pipeline, 3), (Ranks{1, 3}));
  EXPECT_EQ(mesh.group(MeshDimension::data, 3), (Ranks{3, 7}));
  EXPECT_EQ(mesh.group(MeshDimension::context, 3), (Ranks{3}));
}

TEST(Mesh, experts_over_all_tensor_ranks_live_one_share_a_rank) {
  const Mesh mesh = make({.data = 1, .pipeline = 2, .context = 1, .tensor = 2}, 2);
  EXPECT_EQ(mesh.expert_place(3), (ExpertPlace{1, 0, 1, 0, 1}));
  EXPECT_EQ(mesh.dispatch_group(3), (Ranks{2, 3}));
  EXPECT_EQ(mesh.expert_rank_of(3, 8), 0);
  EXPECT_EQ(mesh.expert_rank_of(4, 8), 1);
}

TEST(Mesh, tensor_ranks_left_over_split_each_expert) {
  const Mesh mesh = make({.tensor = 4}, 2);
  EXPECT_EQ(mesh.expert_place(0), (ExpertPlace{0, 0, 2, 0, 1}));
  EXPECT_EQ(mesh.expert_place(3), (ExpertPlace{1, 1, 2, 0, 1}));
  EXPECT_EQ(mesh.dispatch_group(3), (Ranks{0, 1, 2, 3}));
}

TEST(Mesh, data_ranks_left_over_copy_the_experts) {
  const Mesh mesh = make({.data = 2, .tensor = 2}, 2);
  EXPECT_EQ(mesh.expert_place(3), (ExpertPlace{1, 0, 1, 1, 2}));
  EXPECT_EQ(mesh.dispatch_group(3), (Ranks{2, 3}));
}

TEST(Mesh, experts_span_replicas_within_a_stage) {
  const Mesh mesh = make({.data = 2, .pipeline = 2, .context = 1, .tensor = 2}, 4);
  EXPECT_EQ(mesh.dispatch_group(0), (Ranks{0, 1, 4, 5}));
  EXPECT_EQ(mesh.dispatch_group(7), (Ranks{2, 3, 6, 7}));
  EXPECT_EQ(mesh.expert_place(6).expert_rank, 2);
}

TEST(Mesh, replicas_share_dense_matrices_within_a_stage_of_their_step_domain) {
  const auto all = Mesh::create({.data = 2, .pipeline = 2, .tensor = 2}, 1, true);
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(all->replicas_per_domain(), 2);
  EXPECT_EQ(all->dense_size(), 4);
  EXPECT_EQ(all->dense_group(0), (Ranks{0, 1, 4, 5}));
  EXPECT_EQ(all->dense_group(7), (Ranks{2, 3, 6, 7}));
  EXPECT_EQ(all->dense_index(6), 2);
  // Experts over two of four replicas: two domains.
  const auto two = Mesh::create({.data = 4}, 2, true);
  ASSERT_TRUE(two.ok()) << two.error().message;
  EXPECT_EQ(two->replicas_per_domain(), 2);
  EXPECT_EQ(two->dense_group(3), (Ranks{2, 3}));
  EXPECT_EQ(two->dense_index(3), 1);
  const Mesh alone = make({.data = 2, .tensor = 2});
  EXPECT_EQ(alone.replicas_per_domain(), 1);
  EXPECT_EQ(alone.dense_group(3), (Ranks{2, 3}));
  EXPECT_EQ(alone.dense_index(3), 1);
}

TEST(Mesh, refuses_to_share_dense_matrices_without_replicas_and_over_context_ranks) {
  EXPECT_FALSE(Mesh::create({.tensor = 2}, 1, true).ok());
  EXPECT_FALSE(Mesh::create({.data = 2, .context = 2}, 1, true).ok());
}

// Over all small meshes: each copy of a stage's experts is complete, and groups agree on their
// members.
TEST(Mesh, every_part_of_every_expert_has_as_many_ranks_as_copies) {
  int meshes = 0;
  for (const int data : {1, 2, 3}) {
    for (const int context : {1, 2}) {
      for (const int tensor : {1, 2, 4, 6}) {
        for (int experts = 1; experts <= data * context * tensor; ++experts) {
          const auto created = Mesh::create({data, 2, context, tensor}, experts);
          if (!created.ok()) continue;
          ++meshes;
          std::map<std::pair<int, int>, int> holders;
          for (int rank = 0; rank < created->world_size(); ++rank) {
            const ExpertPlace place = created->expert_place(rank);
            if (created->coordinates(rank).stage == 1) {
              ++holders[{place.expert_rank, place.split_index}];
            }
            const Ranks group = created->dispatch_group(rank);
            const int position = place.split_index * experts + place.expert_rank;
            ASSERT_EQ(static_cast<int>(group.size()), experts * place.split_count);
            ASSERT_EQ(group[static_cast<std::size_t>(position)], rank);
            for (const int member : group) {
              ASSERT_EQ(created->dispatch_group(member), group);
              ASSERT_EQ(created->expert_place(member).copy_index, place.copy_index);
            }
            for (const int neighbour : created->group(MeshDimension::tensor, rank)) {
              ASSERT_EQ(created->dispatch_group(neighbour), group) << "a tensor group is divided";
            }
          }
          const ExpertPlace any = created->expert_place(0);
          EXPECT_EQ(static_cast<int>(holders.size()), experts * any.split_count);
          for (const auto& [part, count] : holders) EXPECT_EQ(count, any.copy_count);
        }
      }
    }
  }
  EXPECT_GT(meshes, 40);
}

TEST(Mesh, refuses_sizes_that_do_not_divide_and_says_what_by_what) {
  EXPECT_EQ(refusal({.tensor = 4}, 3),
            "expert_parallel_size 3 does not divide tensor x context x data size 4");
  EXPECT_EQ(refusal({.data = 3, .tensor = 2}, 3),
            "tensor_parallel_size 2 does not divide expert_parallel_size 3");
  EXPECT_EQ(refusal({.data = 1, .pipeline = 0}, 1),
            "pipeline_parallel_size is 0; it must be at least 1");
  EXPECT_EQ(refusal({.tensor = 2}, 0), "expert_parallel_size is 0; it must be at least 1");
}

}  // namespace
}  // namespace troupe
