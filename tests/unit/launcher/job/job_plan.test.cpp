#include "launcher/job/job_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/job/memory_check.hpp"
#include "launcher/job/node_preflight.hpp"
#include "tests/support/require.hpp"
#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

/// The plan of fable-moe with `sections` below the model.
Result<JobPlan> plan_of(const std::string& sections) {
  const std::string yaml =
      "model: {path: " + test::source_path("configs/demo/fable-moe").string() + "}\n";
  TROUPE_TRY(Config config, parse_config(yaml + sections, "c.yaml", {}, Purpose::check));
  return plan_job(std::move(config));
}

/// The same on assumed GPUs.
Result<JobPlan> plan_on(const Gpus& gpus, const std::string& sections) {
  const std::string yaml =
      "model: {path: " + test::source_path("configs/demo/fable-moe").string() + "}\n";
  TROUPE_TRY(Config config, parse_config(yaml + sections, "c.yaml", {}, Purpose::check));
  return plan_job(std::move(config), {.assumed_gpus = gpus});
}

TEST(JobPlan, has_a_problem_with_more_kv_blocks_than_memory) {
  const auto plan = plan_of("engine: {kv_cache_blocks: 100000000}\n");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto startable = check_startable(*plan);
  ASSERT_FALSE(startable.ok());
  EXPECT_EQ(startable.error().code, ErrorCode::resource_exhausted);
  EXPECT_THAT(startable.error().message, HasSubstr("engine.kv_cache_blocks: 100000000 blocks"));
  EXPECT_THAT(startable.error().message, HasSubstr("give at most "));
  EXPECT_TRUE(check_startable(*plan_of("engine: {kv_cache_blocks: 100}\n")).ok());
}

TEST(JobPlan, is_made_for_gpus_that_are_assumed) {
  const Gpus eight{.count = 8, .memory_bytes = std::uint64_t{80} << 30, .assumed = true};
  const auto plan = plan_on(eight, "cluster: {device: cuda}\nparallel: {data_parallel_size: 8}\n");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->engine.device, DeviceKind::cuda);
  EXPECT_TRUE(plan->problems.empty()) << plan->problems.front();
  EXPECT_THAT(describe(*plan), HasSubstr("GPUs: 8 assumed, memory of each: 80.0 GiB"));
  const auto more = plan_on(eight, "parallel: {data_parallel_size: 9}\n");
  ASSERT_FALSE(more.ok());
  EXPECT_THAT(more.error().message, HasSubstr("9 workers, which need a GPU each, and the assumed "
                                              "machine has 8"));
  const auto none = plan_on({.assumed = true}, "cluster: {device: cuda}\n");
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("cluster.device is cuda, but no GPU is assumed"));
}

TEST(JobPlan, leaves_the_gpus_of_other_hosts_to_the_preflight) {
  const auto plan = plan_of(
      "cluster: {device: cuda, launch: ssh, hosts: [h1, h2], network: lo}\n"
      "parallel: {tensor_parallel_size: 2, pipeline_parallel_size: 2}\n");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->engine.device, DeviceKind::cuda);
  const PreflightNeeds needs = preflight_needs(*plan);
  ASSERT_EQ(needs.nodes.size(), 2U);
  for (const NodeNeeds& node : needs.nodes) EXPECT_EQ(node.gpus, 2);
}

TEST(JobPlan, does_not_compare_other_hosts_with_this_machine) {
  const auto plan = plan_of(
      "cluster: {launch: ssh, hosts: [h1], network: lo}\n"
      "engine: {swap_space: 1000000, threads_per_worker: 200}\n");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_THAT(plan->warnings, testing::IsEmpty());
}

TEST(JobPlan, warns_of_context_ranks_on_gpus) {
  const Gpus two{.count = 2, .memory_bytes = std::uint64_t{80} << 30, .assumed = true};
  const Config config =
      *parse_config("model: {path: " + test::source_path("configs/demo/fable-moe").string() +
                        ", dtype: bfloat16}\n"
                        "cluster: {device: cuda}\nparallel: {context_parallel_size: 2}\n",
                    "c.yaml", {}, Purpose::check);
  const auto plan = plan_job(config, {.assumed_gpus = two});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_THAT(plan->warnings, ElementsAre(HasSubstr("has been run on GPUs with 2 ranks")));
}

TEST(JobPlan, tells_the_kernels_of_attention_on_gpus) {
  const Gpus one{.count = 1, .memory_bytes = std::uint64_t{80} << 30, .assumed = true};
  Config config =
      *parse_config("model: {path: " + test::source_path("configs/demo/fable-moe").string() +
                        ", dtype: bfloat16}\n"
                        "cluster: {device: cuda}\n",
                    "c.yaml", {}, Purpose::check);
  const auto fast = plan_job(config, {.assumed_gpus = one});
  ASSERT_TRUE(fast.ok()) << fast.error().message;
  EXPECT_THAT(describe(*fast),
              HasSubstr("attention: 4 / 2 heads of 64: decode steps by the decode kernel (cascade "
                        "attention where requests share a prefix), prompts by FlashInfer\n"));
  EXPECT_TRUE(fast->warnings.empty()) << fast->warnings.front();
  config.engine.cascade_attention = false;
  const auto plain = plan_job(config, {.assumed_gpus = one});
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_THAT(describe(*plain), HasSubstr("by the decode kernel, prompts by FlashInfer\n"));
  config.engine.cascade_attention = true;
  config.kv_cache.dtype = "fp8_e4m3";
  const auto coded = plan_job(config, {.assumed_gpus = one});
  ASSERT_TRUE(coded.ok()) << coded.error().message;
  EXPECT_THAT(describe(*coded), HasSubstr("by the decode kernel, prompts by FlashInfer\n"));
  EXPECT_TRUE(coded->warnings.empty()) << coded->warnings.front();
  config.kv_cache.dtype = "auto";
  config.model.dtype = "float32";
  const auto slow = plan_job(config, {.assumed_gpus = one});
  ASSERT_TRUE(slow.ok()) << slow.error().message;
  EXPECT_THAT(describe(*slow),
              HasSubstr("attention of 4 / 2 heads of 64 in f32 is right but slow"));
}

TEST(JobPlan, refuses_latents_of_8_bits_on_gpus) {
  const Gpus one{.count = 1, .memory_bytes = std::uint64_t{80} << 30, .assumed = true};
  const Config config =
      *parse_config("model: {path: " + test::source_path("tests/data/golden/deepseek3-a").string() +
                        ", dtype: bfloat16}\n"
                        "cluster: {device: cuda}\nkv_cache: {dtype: int8}\n",
                    "c.yaml", {}, Purpose::check);
  const auto plan = plan_job(config, {.assumed_gpus = one});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::unsupported);
  EXPECT_THAT(plan.error().message, HasSubstr("kv_cache.dtype: int8: GPUs have no kernels yet"));
}

/// What is planned for a golden model with a section kv_cache.
Result<JobPlan> with_kv_cache(const std::string& section, const std::string& model = "llama-a",
                              const std::string& more = "", const PlanOptions& options = {}) {
  TROUPE_TRY(
      const Config config,
      parse_config("model: {path: " + test::source_path("tests/data/golden/" + model).string() +
                       "}\nkv_cache: " + section + "\n" + more,
                   "c.yaml", {}, Purpose::check));
  return plan_job(config, options);
}

TEST(JobPlan, says_what_a_kv_cache_of_codes_takes_and_refuses_residuals_without_a_place) {
  // 3 layers of 2 KV heads of 32, with a scale of 2 bytes for each key and value.
  REQUIRE_OK(const JobPlan int8, with_kv_cache("{dtype: int8}"));
  EXPECT_THAT(describe(int8), HasSubstr("KV cache in int8, 408 bytes a token, 8.50 bits a number"));
  REQUIRE_OK(const JobPlan int4, with_kv_cache("{dtype: int4}"));
  EXPECT_THAT(describe(int4), HasSubstr("KV cache in int4, 216 bytes a token, 4.50 bits a number"));
  REQUIRE_OK(const JobPlan keys, with_kv_cache("{dtype: int4, residual: keys}"));
  EXPECT_THAT(describe(keys), HasSubstr("KV cache in int4 with residuals of keys, 312 bytes a "
                                        "token, 6.50 bits a number"));
  REQUIRE_OK(const JobPlan some,
             with_kv_cache("{dtype: int4, residual: all, residual_layers: [0, 2-2]}"));
  EXPECT_THAT(describe(some), HasSubstr("with residuals in 2 of 3 layers, 344 bytes a token"));
  EXPECT_EQ(some.ranks.front().kv_bytes_per_block, 16U * 344);

  const auto message = [](const Result<JobPlan>& plan) {
    return plan.ok() ? "planned" : plan.error().message;
  };
  const std::string layers = "{dtype: int4, residual: keys, residual_layers: ";
  EXPECT_THAT(message(with_kv_cache("{residual: keys}")),
              HasSubstr("no effect where kv_cache.dtype is auto"));
  EXPECT_THAT(message(with_kv_cache("{dtype: int4, residual_layers: [0]}")),
              HasSubstr("no effect where kv_cache.residual is none"));
  EXPECT_THAT(message(with_kv_cache(layers + "[3]}")), HasSubstr("from 0 to 2"));
  EXPECT_THAT(message(with_kv_cache(layers + "[2-1]}")), HasSubstr("found 2-1"));
  EXPECT_THAT(
      message(with_kv_cache(layers + "[0]}", "llama-a", "parallel: {context_parallel_size: 2}\n")),
      HasSubstr("Leave kv_cache.residual_layers at auto"));
  EXPECT_THAT(message(with_kv_cache(layers + "[0]}", "gemma2-a")), HasSubstr("have windows"));
  EXPECT_THAT(message(with_kv_cache("{dtype: int4}", "deepseek3-a")),
              HasSubstr("latent attention is not read from 4 bits"));
}

TEST(JobPlan, plans_a_kv_cache_of_4_bits_and_residuals_on_gpus_in_the_same_bytes) {
  const Gpus one{.count = 1, .memory_bytes = std::uint64_t{80} << 30, .assumed = true};
  for (const std::string section : {"{dtype: int4}", "{dtype: int4, residual: keys}"}) {
    REQUIRE_OK(const JobPlan gpu, with_kv_cache(section, "llama-a", "cluster: {device: cuda}\n",
                                                {.assumed_gpus = one}));
    REQUIRE_OK(const JobPlan cpu, with_kv_cache(section));
    EXPECT_EQ(gpu.ranks.front().kv_bytes_per_block, cpu.ranks.front().kv_bytes_per_block);
  }
}

TEST(JobPlan, has_a_problem_with_what_a_gpu_does_not_hold) {
  const Gpus tiny{.count = 8, .memory_bytes = 1 << 20, .assumed = true};
  const auto weights = plan_on(tiny, "");
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  ASSERT_EQ(weights->problems.size(), 1U);
  EXPECT_THAT(weights->problems.front(), HasSubstr("parallel.tensor_parallel_size: "));
  const Gpus one{.count = 1, .memory_bytes = std::uint64_t{80} << 30, .assumed = true};
  const auto blocks = plan_on(one, "engine: {kv_cache_blocks: 100000000}\n");
  ASSERT_TRUE(blocks.ok()) << blocks.error().message;
  ASSERT_EQ(blocks->problems.size(), 1U);
  EXPECT_THAT(blocks->problems.front(), HasSubstr("engine.kv_cache_blocks: 100000000 blocks"));
}

TEST(JobPlan, leaves_room_for_the_tables_of_rotary_embeddings) {
  const Gpus one{.count = 1, .memory_bytes = std::uint64_t{80} << 30, .assumed = true};
  auto plan = plan_on(one, "engine: {max_model_len: 128}\n");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->ranks[0].rope_bytes, std::size_t{128} * 64 * 4);
  EXPECT_THAT(plan->problems, testing::IsEmpty());
  plan->ranks[0].rope_bytes = std::size_t{80} << 30;
  judge_gpu_memory(*plan, one.memory_bytes);
  EXPECT_EQ(plan->problems.size(), 1U);

  auto on_cpu = plan_of("");
  ASSERT_TRUE(on_cpu.ok()) << on_cpu.error().message;
  on_cpu->warnings.clear();
  judge_host_memory(*on_cpu, std::uint64_t{1} << 30);
  EXPECT_THAT(on_cpu->warnings, testing::IsEmpty());
  on_cpu->ranks[0].rope_bytes = std::size_t{1} << 30;
  judge_host_memory(*on_cpu, std::uint64_t{1} << 30);
  EXPECT_THAT(on_cpu->warnings, ElementsAre(HasSubstr("of memory are free")));
}

TEST(JobPlan, leaves_room_for_what_layers_need_to_fall_back) {
  // Buffers of passes and CUDA's own take 1.5 GiB; of what is left, 128 MiB are missed.
  const Gpus small{.count = 1, .memory_bytes = std::uint64_t{1750} << 20, .assumed = true};
  const auto plan_with = [&](const std::string& precision) {
    const std::string yaml =
        "model: {path: " + test::source_path("tests/data/golden/llama-a").string() +
        ", dtype: bfloat16, quantization: fp8}\n"
        "engine: {max_num_batched_tokens: 512}\n";
    auto config = parse_config(yaml + precision, "c.yaml", {}, Purpose::check);
    return plan_job(*std::move(config), {.assumed_gpus = small});
  };
  REQUIRE_OK(const JobPlan plain, plan_with(""));
  EXPECT_EQ(plain.ranks.front().decoded_bytes, 0U);
  EXPECT_THAT(plain.problems, testing::IsEmpty());
  REQUIRE_OK(const JobPlan falling, plan_with("precision: {fallback: w8a16}\n"));
  EXPECT_EQ(falling.ranks.front().decoded_bytes, std::size_t{128} << 20);
  EXPECT_THAT(falling.problems, ElementsAre(HasSubstr("buffers of its passes about")));
}

TEST(JobPlan, warns_of_a_head_that_gpus_leave_as_it_is) {
  const auto warnings_of = [](const std::string& model, const std::string& sections) {
    const std::string yaml = "model: {path: " + test::source_path(model).string() +
                             ", dtype: bfloat16, quantization: fp8, quantize_lm_head: true}\n";
    auto config = parse_config(yaml + sections, "c.yaml", {}, Purpose::check);
    const Gpus gpus{.count = 8, .memory_bytes = std::uint64_t{40} << 30, .assumed = true};
    const auto plan = plan_job(*std::move(config), {.assumed_gpus = gpus});
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return plan->warnings;
  };
  const std::string tied = "configs/demo/fable-moe", untied = "tests/data/golden/llama-a";
  const auto is_told = Contains(HasSubstr("model.quantize_lm_head has no effect"));
  EXPECT_THAT(warnings_of(tied, ""), is_told);
  EXPECT_THAT(warnings_of(tied, "parallel: {pipeline_parallel_size: 2}\n"), testing::Not(is_told))
      << "the last stage has a copy of its own";
  EXPECT_THAT(warnings_of(untied, ""), testing::Not(is_told));
}

TEST(JobPlan, gives_the_engine_every_parallel_size) {
  const auto plan = plan_of(
      "parallel: {tensor_parallel_size: 2, pipeline_parallel_size: 4, data_parallel_size: 3,\n"
      "           expert_parallel_size: 1, sequence_parallel: true, collectives: network}\n");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->engine.tensor_parallel_size, 2);
  EXPECT_EQ(plan->engine.pipeline_parallel_size, 4);
  EXPECT_EQ(plan->engine.data_parallel_size, 3);
  EXPECT_EQ(plan->engine.expert_parallel_size, 1);
  EXPECT_TRUE(plan->engine.sequence_parallel);
  EXPECT_EQ(plan->engine.collectives, "network");
  ASSERT_EQ(plan->cluster.nodes.size(), 1U);
  EXPECT_EQ(plan->cluster.nodes[0].devices.size(), 24U);
  EXPECT_EQ(plan->ranks.size(), 24U);
}

TEST(JobPlan, decides_what_is_left_to_it) {
  const auto plan = plan_of("parallel: {tensor_parallel_size: 2, data_parallel_size: 2}\n");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->engine.expert_parallel_size, 2);
  EXPECT_EQ(plan->engine.pipeline_parallel_size, 1);
  EXPECT_EQ(plan->engine.collectives, "shm");
  EXPECT_EQ(plan->engine.kv_cache_blocks, 0);
  EXPECT_GT(plan->kv_blocks, 0);
  EXPECT_GE(plan->engine.threads_per_worker, 1);
}

TEST(JobPlan, knows_what_every_rank_will_hold) {
  const auto plan = plan_of(
      "parallel: {tensor_parallel_size: 2, pipeline_parallel_size: 2, data_parallel_size: 2,\n"
      "           expert_parallel_size: 4}\n"
      "engine: {kv_cache_blocks: 100, block_size: 32}\n");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->kv_blocks, 100);
  for (int rank = 0; rank < 8; ++rank) {
    SCOPED_TRACE(plan->mesh.describe(rank));
    const MeshCoordinates at = plan->mesh.coordinates(rank);
    const RankFootprint& held = plan->ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(held.layers, (Slice{at.stage * 2, 2}));
    EXPECT_EQ(held.experts, (Slice{(at.data * 2 + at.tensor) * 4, 4}));
    // 2 layers x KV x 32 tokens x 1 head x 64, in f32.
    EXPECT_EQ(held.kv_bytes_per_block, std::size_t{2} * 2 * 32 * 64 * 4);
  }
}

TEST(JobPlan, warns_of_more_threads_than_cores) {
  const auto plan = plan_of("engine: {threads_per_worker: 1024}\n");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  // A build with GPU support also warns where this machine has no GPU that it can use.
  EXPECT_THAT(plan->warnings, Contains(HasSubstr("1 workers of 1024 threads on")));
  EXPECT_THAT(describe(*plan), HasSubstr("warning: 1 workers of 1024 threads on"));
}

TEST(JobPlan, refuses_steps_smaller_than_the_running_requests) {
  const auto plan = plan_of("engine: {max_num_seqs: 64, max_num_batched_tokens: 32}\n");
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("engine.max_num_batched_tokens is 32"));
}

TEST(JobPlan, refuses_a_context_that_the_model_was_not_made_for) {
  const auto plan = plan_of("engine: {max_model_len: 4096}\n");
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("engine.max_model_len is 4096"));
}

}  // namespace
}  // namespace troupe
