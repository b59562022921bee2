#include "launcher/config/cluster_config.hpp"

#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "launcher/config/config_schema.hpp"
#include "tests/support/source_path.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/launcher/config/config_text.hpp"

namespace troupe::config_test {
namespace {

TEST(ClusterConfig, fills_in_the_defaults_of_this_version) {
  const auto config = parse(minimal);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->name, "batch");
  EXPECT_EQ(config->model.path, "configs/demo/fable-moe");
  EXPECT_EQ(config->model.served_model_name, std::vector<std::string>{"fable-moe"});
  EXPECT_EQ(config->model.dtype, "auto");
  EXPECT_EQ(config->cluster.launch, "local");
  EXPECT_FALSE(config->cluster.devices_per_node.has_value());
  EXPECT_EQ(config->parallel.tensor_parallel_size, 1);
  EXPECT_EQ(config->parallel.pipeline_parallel_size, 1);
  EXPECT_FALSE(config->parallel.sequence_parallel);
  EXPECT_FALSE(config->parallel.expert_parallel_size.has_value());
  EXPECT_EQ(config->engine.max_num_seqs, 256);
  EXPECT_FALSE(config->engine.max_num_batched_tokens.has_value());
  EXPECT_EQ(config->engine.block_size, 16);
  EXPECT_DOUBLE_EQ(config->engine.gpu_memory_utilization, 0.92);
  EXPECT_TRUE(config->engine.enable_chunked_prefill);
  EXPECT_TRUE(config->engine.enable_prefix_caching);
  EXPECT_EQ(config->job.resume, "auto");
  EXPECT_DOUBLE_EQ(config->job.grace_seconds, 25);
  EXPECT_FALSE(config->job.max_failures.has_value());
  EXPECT_EQ(config->job.seed, 0);
}

TEST(ClusterConfig, reads_every_key_in_both_yaml_styles) {
  const auto config = parse(R"(# a comment
name: stories
model:
  path: "a folder/fable-moe/"
  served_model_name: [fable-moe, tales]
  dtype: bfloat16
cluster: {launch: local, hosts: [], devices_per_node: 4, network: auto}
parallel:
  tensor_parallel_size: 2
  pipeline_parallel_size: 3
  expert_parallel_size: 4
  collectives: network
engine:
  max_model_len: 512
  max_num_seqs: 8
  max_num_batched_tokens: 128
  block_size: 32
  kv_cache_blocks: 1000
  gpu_memory_utilization: 0.5
  threads_per_worker: 1
  deterministic: true
job: {input: a.jsonl, output: b.jsonl, seed: 42}
)");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->name, "stories");
  EXPECT_EQ(config->model.path, "a folder/fable-moe/");
  EXPECT_EQ(config->model.served_model_name, (std::vector<std::string>{"fable-moe", "tales"}));
  EXPECT_EQ(config->cluster.devices_per_node, 4);
  EXPECT_EQ(config->parallel.tensor_parallel_size, 2);
  EXPECT_EQ(config->parallel.pipeline_parallel_size, 3);
  EXPECT_EQ(config->parallel.expert_parallel_size, 4);
  EXPECT_EQ(config->parallel.collectives, "network");
  EXPECT_EQ(config->engine.max_model_len, 512);
  EXPECT_EQ(config->engine.kv_cache_blocks, 1000);
  EXPECT_EQ(config->engine.deterministic, true);
  EXPECT_EQ(config->job.seed, 42);
}

TEST(ClusterConfig, names_the_served_model_after_the_folder_whatever_its_last_slash) {
  for (const char* path : {"x/fable-moe", "x/fable-moe/", "fable-moe", "./fable-moe/."}) {
    const auto config = parse(fmt::format("model: {{path: {}}}", path), {}, Purpose::check);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->model.served_model_name.front(), "fable-moe") << path;
  }
}

TEST(ClusterConfig, names_the_served_model_of_a_relative_path_after_the_absolute_one) {
  const auto config = parse("model: {path: .}", {}, Purpose::check);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->model.served_model_name.front(),
            std::filesystem::current_path().filename().string());
  EXPECT_EQ(model_folder_name("/"), "model");
}

TEST(ClusterConfig, reads_names_again_that_are_words_for_nothing) {
  for (const std::string name : {"null", "Null", "NULL", "~"}) {
    Config config = *parse("model: {path: x}", {}, Purpose::check);
    config.name = name;
    config.model.served_model_name = {name};
    const auto again = parse(to_yaml(config), {}, Purpose::check);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->name, name);
    EXPECT_EQ(again->model.served_model_name, std::vector<std::string>{name});
  }
}

TEST(ClusterConfig, takes_one_served_name_without_brackets) {
  const auto config = parse("model: {path: x, served_model_name: tales}", {}, Purpose::check);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->model.served_model_name, std::vector<std::string>{"tales"});
}

TEST(ClusterConfig, prints_what_it_can_read_again_without_input_and_output_too) {
  const auto config = parse_config("model: {path: m}\n", "c.yaml", {}, Purpose::check);
  ASSERT_TRUE(config.ok()) << config.error().message;
  const std::string printed = to_yaml(*config);
  const auto again = parse_config(printed, "printed", {}, Purpose::check);
  ASSERT_TRUE(again.ok()) << again.error().message << "\n" << printed;
  EXPECT_EQ(to_yaml(*again), printed);
}

TEST(ClusterConfig, opens_a_port_for_metrics_only_where_one_is_given) {
  EXPECT_FALSE(parse(minimal)->metrics.port.has_value());
  EXPECT_FALSE(parse(with("metrics: {port: off}\n"))->metrics.port.has_value());
  EXPECT_EQ(parse(with("metrics: {port: 0}\n"))->metrics.port, 0);
  const auto config = parse(with("metrics: {port: 9100, address: 0.0.0.0}\n"));
  EXPECT_EQ(config->metrics.port, 9100);
  EXPECT_EQ(config->metrics.address, "0.0.0.0");
  EXPECT_NE(to_yaml(*config).find("metrics:\n  port: 9100\n"), std::string::npos);
  EXPECT_NE(to_yaml(*parse(minimal)).find("metrics:\n  port: off\n"), std::string::npos);
  EXPECT_EQ(parse(with("metrics: {port: 65536}\n")).error().message,
            "c.yaml:3: metrics.port: expected an integer or off from 0 to 65535, found 65536");
  EXPECT_EQ(parse(with("metrics: {port: auto}\n")).error().message,
            "c.yaml:3: metrics.port: expected an integer or off, found the text \"auto\"");
}

TEST(ClusterConfig, lets_the_command_line_win_over_the_file_and_the_last_set_over_the_first) {
  const auto config = parse(with("engine: {block_size: nonsense}\n"),
                            {"engine.block_size=32", "engine.block_size=64", "name=a b: c",
                             "job.input=x=y.jsonl", "model.served_model_name=[a, b]"});
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->engine.block_size, 64);
  EXPECT_EQ(config->name, "a b: c");
  EXPECT_EQ(config->job.input, "x=y.jsonl");
  EXPECT_EQ(config->model.served_model_name, (std::vector<std::string>{"a", "b"}));
}

TEST(ClusterConfig, needs_no_files_for_a_check) {
  EXPECT_TRUE(parse("model: {path: x}", {}, Purpose::check).ok());
  EXPECT_FALSE(parse("model: {path: x}", {}, Purpose::run).ok());
}

TEST(ClusterConfig, takes_numbers_that_have_no_effect_where_they_are_the_default) {
  EXPECT_TRUE(
      parse(with("kv_cache: {sink_tokens: 4, heavy_tokens: 512, window_tokens: auto}\n")).ok());
}

TEST(ClusterConfig, prints_yaml_that_reads_back_the_same) {
  const auto config =
      parse(with("name: \"a: \\\"b\\\"\"\nengine: {max_model_len: 100}\n"),
            {"parallel.tensor_parallel_size=2", "model.served_model_name=[x, 'y z']"});
  ASSERT_TRUE(config.ok()) << config.error().message;
  const std::string printed = to_yaml(*config);
  const auto again = parse(printed);
  ASSERT_TRUE(again.ok()) << again.error().message << "\n" << printed;
  EXPECT_EQ(to_yaml(*again), printed);
  EXPECT_EQ(again->name, "a: \"b\"");
  EXPECT_EQ(again->model.served_model_name, (std::vector<std::string>{"x", "y z"}));
}

TEST(ClusterConfig, says_what_is_wrong_with_the_file_itself) {
  const tests::TemporaryFolder folder;
  const auto missing = load_config((folder.path() / "none.yaml").string(), {}, Purpose::run);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_NE(missing.error().message.find("none.yaml: no such file"), std::string::npos)
      << missing.error().message;
  const auto directory = load_config(folder.path().string(), {}, Purpose::run);
  ASSERT_FALSE(directory.ok());
  EXPECT_NE(directory.error().message.find("this is a folder"), std::string::npos);
  const auto big_file = folder.write("big.yaml", std::string((1 << 20) + 10, '#'));
  const auto big = load_config(big_file.string(), {}, Purpose::run);
  ASSERT_FALSE(big.ok());
  EXPECT_NE(big.error().message.find("over 1 MiB"), std::string::npos) << big.error().message;
  const auto good = folder.write("good.yaml", minimal);
  EXPECT_TRUE(load_config(good.string(), {}, Purpose::run).ok());
}

TEST(ClusterConfig, ships_configurations_that_are_valid) {
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(test::source_path("configs"))) {
    if (entry.path().extension() != ".yaml") continue;
    const auto config = load_config(entry.path().string(), {}, Purpose::check);
    EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  }
}

TEST(ClusterConfig, survives_mutated_files) {
  const std::string seed_text = to_yaml(*parse(minimal)) + "cluster: [{a: &x *x}]\n? b\n: |\n  c\n";
  const std::string alphabet = "{}[]:,-\n #&*!|>'\"%@`?\t\\x0a1\xff\xc3";
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    std::mt19937 random(seed);
    std::string text = seed_text;
    const unsigned changes = 1 + random() % 12;
    for (unsigned i = 0; i < changes; ++i) {
      const std::size_t place = random() % text.size();
      const char c = alphabet[random() % alphabet.size()];
      switch (random() % 4) {
        case 0:
          text[place] = c;
          break;
        case 1:
          text.insert(place, 1 + random() % 3, c);
          break;
        case 2:
          text.erase(place, 1 + random() % 20);
          break;
        default:
          text.insert(place, text.substr(random() % text.size(), random() % 40));
      }
      if (text.empty()) text.assign(1, 'x');
    }
    const auto config = parse(text);
    if (!config.ok()) {
      EXPECT_FALSE(config.error().message.empty()) << "seed " << seed;
    } else {
      EXPECT_FALSE(config->model.path.empty()) << "seed " << seed;
    }
  }
}

TEST(ClusterConfig, survives_deep_nesting) {
  for (const char open : {'[', '{'}) {
    EXPECT_FALSE(parse(std::string(200000, open)).ok());
    EXPECT_FALSE(parse("a: " + std::string(200000, open)).ok());
  }
  std::string block;
  for (int i = 0; i < 1000; ++i) block += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_FALSE(parse(block).ok());
}

TEST(ConfigSchema, has_a_line_of_explanation_and_an_allowed_default_for_every_key) {
  for (const KeySpec& spec : config_schema()) {
    EXPECT_FALSE(spec.doc.empty()) << spec.key;
    EXPECT_LE(spec.doc.size(), 90U) << spec.key;
    ASSERT_NE(spec.set, nullptr) << spec.key;
    ASSERT_NE(spec.get, nullptr) << spec.key;
    if (spec.default_value.empty()) continue;
    EXPECT_TRUE(parse(minimal, {fmt::format("{}={}", spec.key, spec.default_value)}).ok())
        << spec.key;
    EXPECT_EQ(value_of(spec, *parse(minimal)), spec.default_value) << spec.key;
  }
}

}  // namespace
}  // namespace troupe::config_test
