#include "launcher/job/topology.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

/// A model of 4 layers with 16 experts; optionally the second layer is dense.
ModelConfig moe_model(bool with_a_dense_layer = false) {
  ModelConfig model;
  model.hidden_size = 256;
  model.layers = 4;
  model.heads = 8;
  model.kv_heads = 2;
  model.head_dim = 32;
  model.intermediate_size = 700;
  model.vocab_size = 4096;
  model.max_position_embeddings = 2048;
  model.moe = MoeConfig{.experts = 16, .top_k = 4, .intermediate_size = 128, .dense_layers = {}};
  if (with_a_dense_layer) model.moe->dense_layers = {1};
  return model;
}

ModelConfig dense_model() {
  ModelConfig model = moe_model();
  model.intermediate_size = 704;
  model.moe.reset();
  return model;
}

Config config_of(const Config::Parallel& sizes) {
  Config config;
  config.model.path = "some/model";
  config.parallel = sizes;
  return config;
}

std::string refusal(const Config& config, const ModelConfig& model) {
  const auto mesh = plan_mesh(config, model);
  if (mesh.ok()) return "accepted";
  EXPECT_EQ(mesh.error().code, ErrorCode::invalid_argument);
  return mesh.error().message;
}

std::string refusal(const Config::Parallel& sizes, const ModelConfig& model) {
  return refusal(config_of(sizes), model);
}

TEST(Topology, makes_the_mesh_that_the_sizes_say) {
  const auto mesh = plan_mesh(config_of({.tensor_parallel_size = 2,
                                         .pipeline_parallel_size = 4,
                                         .data_parallel_size = 3,
                                         .context_parallel_size = 5,
                                         .expert_parallel_size = 1}),
                              moe_model());
  ASSERT_TRUE(mesh.ok()) << mesh.error().message;
  EXPECT_EQ(mesh->shape(), (MeshShape{.data = 3, .pipeline = 4, .context = 5, .tensor = 2}));
  EXPECT_EQ(mesh->expert_parallel_size(), 1);
}

TEST(Topology, deals_experts_to_the_tensor_ranks_by_itself) {
  EXPECT_EQ(auto_expert_parallel_size({.data = 2, .tensor = 4}, moe_model()), 4);
  EXPECT_EQ(auto_expert_parallel_size({.data = 2}, moe_model()), 1);
  EXPECT_EQ(auto_expert_parallel_size({.context = 2, .tensor = 4}, moe_model()), 4);
  EXPECT_EQ(auto_expert_parallel_size({.tensor = 4}, dense_model()), 1);
  ModelConfig odd = moe_model();
  odd.moe->experts = 6;
  EXPECT_EQ(auto_expert_parallel_size({.tensor = 4}, odd), 2);
  odd.moe->experts = 15;
  EXPECT_EQ(auto_expert_parallel_size({.tensor = 4}, odd), 1);
  const auto mesh = plan_mesh(config_of({.tensor_parallel_size = 4}), moe_model());
  ASSERT_TRUE(mesh.ok()) << mesh.error().message;
  EXPECT_EQ(mesh->expert_parallel_size(), 4);
}

TEST(Topology, deals_experts_over_replicas_where_that_is_asked_for) {
  const auto mesh = plan_mesh(
      config_of({.tensor_parallel_size = 2, .data_parallel_size = 2, .expert_parallel_size = 4}),
      moe_model());
  ASSERT_TRUE(mesh.ok()) << mesh.error().message;
  EXPECT_EQ(mesh->expert_parallel_size(), 4);
}

TEST(Topology, deals_experts_over_the_replicas_that_share_dense_layers) {
  EXPECT_EQ(auto_expert_parallel_size({.data = 2, .tensor = 2}, moe_model(), true), 4);
  EXPECT_EQ(auto_expert_parallel_size({.data = 4}, moe_model(), true), 4);
  EXPECT_EQ(auto_expert_parallel_size({.data = 4}, dense_model(), true), 1);
  ModelConfig odd = moe_model();
  odd.moe->experts = 6;
  EXPECT_EQ(auto_expert_parallel_size({.data = 4}, odd, true), 2);
  EXPECT_EQ(auto_expert_parallel_size({.data = 4, .tensor = 4}, odd, true), 2);
  const auto mesh =
      plan_mesh(config_of({.data_parallel_size = 4, .data_parallel_attention = true}), moe_model());
  ASSERT_TRUE(mesh.ok()) << mesh.error().message;
  EXPECT_EQ(mesh->expert_parallel_size(), 4);
  EXPECT_EQ(mesh->replicas_per_domain(), 4);
  EXPECT_EQ(mesh->dense_size(), 4);
}

TEST(Topology, replicas_of_a_dense_model_that_share_its_layers_step_together) {
  const auto mesh = plan_mesh(
      config_of(
          {.tensor_parallel_size = 2, .data_parallel_size = 2, .data_parallel_attention = true}),
      dense_model());
  ASSERT_TRUE(mesh.ok()) << mesh.error().message;
  EXPECT_EQ(mesh->replicas_per_domain(), 2);
  EXPECT_EQ(mesh->dense_size(), 4);
}

TEST(Topology, refuses_to_share_dense_layers_where_replicas_cannot) {
  EXPECT_EQ(refusal({.data_parallel_attention = true}, dense_model()),
            "parallel.data_parallel_attention: it is for several replicas, but "
            "parallel.data_parallel_size is 1: raise it, or leave this out (some/model)");
  EXPECT_EQ(
      refusal(
          {.data_parallel_size = 2, .context_parallel_size = 2, .data_parallel_attention = true},
          dense_model()),
      "parallel.data_parallel_attention: replicas that share dense layers gather whole rows: "
      "set parallel.context_parallel_size: 1 (some/model)");
  EXPECT_EQ(refusal({.tensor_parallel_size = 2,
                     .data_parallel_size = 2,
                     .sequence_parallel = true,
                     .data_parallel_attention = true},
                    dense_model()),
            "parallel.data_parallel_attention: replicas that share dense layers gather whole rows: "
            "set parallel.sequence_parallel: false (some/model)");
  EXPECT_EQ(refusal({.data_parallel_size = 8, .data_parallel_attention = true}, moe_model(true)),
            "parallel.data_parallel_attention: 8 replicas of 1 tensor ranks share each matrix, "
            "which do not divide the 4 segments of intermediate_size 700 that keep results the "
            "same in every arrangement (some/model)");
  ModelConfig shared = moe_model();
  shared.moe->shared_intermediate_size = 130;
  EXPECT_EQ(refusal({.data_parallel_size = 4, .data_parallel_attention = true}, shared),
            "parallel.data_parallel_attention: 4 replicas of 1 tensor ranks share each matrix, "
            "which do not divide the 2 segments of the shared experts' inner size 130 that keep "
            "results the same in every arrangement (some/model)");
}

TEST(Topology, refuses_a_tensor_size_that_does_not_divide_the_heads) {
  EXPECT_EQ(refusal({.tensor_parallel_size = 3}, moe_model()),
            "parallel.tensor_parallel_size: tensor size 3 does not divide attention heads 8 "
            "(some/model)");
  EXPECT_EQ(refusal({.tensor_parallel_size = 16}, moe_model()),
            "parallel.tensor_parallel_size: tensor size 16 does not divide attention heads 8 "
            "(some/model)");
}

TEST(Topology, refuses_a_tensor_size_that_does_not_fit_the_kv_heads) {
  ModelConfig model = moe_model();
  model.heads = 12;
  model.kv_heads = 3;
  EXPECT_EQ(refusal({.tensor_parallel_size = 2}, model),
            "parallel.tensor_parallel_size: tensor size 2 does not divide KV heads 3 "
            "(some/model)");
  EXPECT_EQ(refusal({.tensor_parallel_size = 4}, model),
            "parallel.tensor_parallel_size: KV heads 3 do not divide tensor size 4 (some/model)");
}

TEST(Topology, refuses_a_tensor_size_that_does_not_divide_the_segments_of_sums) {
  ModelConfig model = moe_model();
  model.heads = 12;
  model.kv_heads = 12;
  EXPECT_EQ(refusal({.tensor_parallel_size = 3}, model),
            "parallel.tensor_parallel_size: tensor size 3 does not divide the 4 segments of "
            "attention heads 12, which keep results the same at every tensor size (some/model)");
  EXPECT_EQ(refusal({.tensor_parallel_size = 8}, moe_model(true)),
            "parallel.tensor_parallel_size: tensor size 8 does not divide the 4 segments of "
            "intermediate_size 700, which keep results the same at every tensor size "
            "(some/model)");
  EXPECT_EQ(refusal({.tensor_parallel_size = 8}, moe_model()), "accepted");
}

TEST(Topology, refuses_more_stages_than_layers) {
  EXPECT_EQ(refusal({.pipeline_parallel_size = 8}, moe_model()),
            "parallel.pipeline_parallel_size: pipeline_parallel_size 8 does not fit the model's 4 "
            "layers (some/model)");
}

TEST(Topology, refuses_ranks_that_do_not_divide_the_experts) {
  ModelConfig model = moe_model();
  model.moe->experts = 6;
  EXPECT_EQ(refusal({.tensor_parallel_size = 4, .expert_parallel_size = 4}, model),
            "parallel.expert_parallel_size: expert_parallel_size 4 does not divide the experts 6 "
            "(some/model)");
}

TEST(Topology, refuses_expert_ranks_that_the_stage_does_not_have) {
  EXPECT_EQ(refusal({.tensor_parallel_size = 2, .expert_parallel_size = 4}, moe_model()),
            "parallel.expert_parallel_size: expert_parallel_size 4 does not divide tensor x "
            "context x data size 2 (some/model)");
  EXPECT_EQ(refusal({.tensor_parallel_size = 2, .data_parallel_size = 3, .expert_parallel_size = 3},
                    moe_model()),
            "parallel.expert_parallel_size: tensor_parallel_size 2 does not divide "
            "expert_parallel_size 3 (some/model)");
}

TEST(Topology, refuses_to_split_an_expert_in_more_parts_than_its_sums_have) {
  ModelConfig model = moe_model();
  model.moe->intermediate_size = 130;
  EXPECT_EQ(refusal({.tensor_parallel_size = 4, .expert_parallel_size = 1}, model),
            "parallel.expert_parallel_size: 1 ranks for experts of 4 tensor ranks split each "
            "expert in 4, which does not divide the 2 segments of moe_intermediate_size 130 "
            "(some/model)");
  EXPECT_EQ(refusal({.tensor_parallel_size = 4, .expert_parallel_size = 2}, model), "accepted");
  EXPECT_EQ(refusal({.tensor_parallel_size = 4}, model), "accepted");
}

TEST(Topology, refuses_expert_ranks_for_a_model_without_experts) {
  EXPECT_EQ(refusal({.tensor_parallel_size = 2, .expert_parallel_size = 2}, dense_model()),
            "parallel.expert_parallel_size: 2 ranks for experts, but the model has none "
            "(some/model)");
  EXPECT_EQ(refusal({.tensor_parallel_size = 2, .expert_parallel_size = 1}, dense_model()),
            "accepted");
}

TEST(Topology, refuses_more_workers_than_the_node_takes) {
  Config config =
      config_of({.tensor_parallel_size = 2, .pipeline_parallel_size = 2, .data_parallel_size = 2});
  config.cluster.devices_per_node = 7;
  EXPECT_EQ(refusal(config, moe_model()),
            "cluster.devices_per_node: 2 replicas of 2 stages of 2 workers are 8 workers, but the "
            "node takes 7");
  config.cluster.devices_per_node = 8;
  EXPECT_EQ(refusal(config, moe_model()), "accepted");
}

TEST(Topology, deterministic_gpus_take_whole_experts_and_tensor_sizes_up_to_four) {
  const auto refusal_of = [](const MeshShape& shape, int experts, const ModelConfig& model,
                             DType dtype = DType::bf16) {
    const auto mesh = Mesh::create(shape, experts);
    EXPECT_TRUE(mesh.ok()) << mesh.error().message;
    const auto checked = check_deterministic_gpus(*mesh, model, dtype);
    return checked.ok() ? "accepted" : checked.error().message;
  };
  const std::string otherwise = "; or leave it at auto, or set cluster.device: cpu";
  EXPECT_EQ(refusal_of({.tensor = 4}, 1, dense_model()), "accepted");
  EXPECT_EQ(refusal_of({.data = 2, .pipeline = 2, .tensor = 2}, 1, dense_model()), "accepted");
  EXPECT_EQ(refusal_of({.tensor = 4}, 4, moe_model()), "accepted");
  EXPECT_EQ(refusal_of({.data = 2, .tensor = 2}, 4, moe_model()), "accepted");
  EXPECT_EQ(
      refusal_of({.tensor = 1}, 1, moe_model(), DType::f32),
      "engine.deterministic: true on GPUs is for bfloat16: set model.dtype: bfloat16" + otherwise);
  EXPECT_EQ(refusal_of({.tensor = 8}, 1, dense_model()),
            "engine.deterministic: true on GPUs takes parallel.tensor_parallel_size 1, 2 or 4, "
            "not 8" +
                otherwise);
  EXPECT_EQ(refusal_of({.tensor = 4}, 2, moe_model()),
            "engine.deterministic: true on GPUs takes whole experts: set "
            "parallel.expert_parallel_size: 4" +
                otherwise);
}

TEST(LaterNodes, are_added_until_all_replicas_of_an_elastic_job_have_places) {
  Config config;
  config.cluster.launch = "ssh";
  config.cluster.elastic = true;
  const Mesh mesh = *Mesh::create({.data = 4, .pipeline = 2});
  std::vector<NodeSpec> nodes{{.name = "h1", .cpus = 4, .devices = {0, 1, 2}}};
  EXPECT_EQ(*add_later_nodes(config, mesh, nodes), 2U);
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_FALSE(nodes[0].joins_later);
  EXPECT_EQ(nodes[2].name, "later-2");
  EXPECT_TRUE(nodes[2].joins_later);
  EXPECT_EQ(nodes[2].devices, nodes[0].devices);

  std::vector<NodeSpec> enough{{.name = "h1", .devices = {0, 1, 2, 3, 4, 5, 6, 7}}};
  EXPECT_EQ(*add_later_nodes(config, mesh, enough), 0U);
  std::vector<NodeSpec> few{{.name = "h1", .devices = {0}}};
  EXPECT_FALSE(add_later_nodes(config, mesh, few).ok()) << "no replica has a place";
  config.cluster.elastic = false;
  few = {{.name = "h1", .devices = {0, 1}}};
  EXPECT_EQ(*add_later_nodes(config, mesh, few), 0U) << "plan_mesh refuses it";
}

}  // namespace
}  // namespace troupe
