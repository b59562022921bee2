#include "launcher/config/cluster_config.hpp"

#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>
#include <unistd.h>

#include "launcher/config/config_schema.hpp"

namespace troupe {
namespace {

constexpr std::string_view minimal =
    "model: {path: configs/demo/fable-moe}\n"
    "job: {input: in.jsonl, output: out.jsonl}\n";

Result<Config> parse(std::string_view text, const std::vector<std::string>& sets = {},
                     Purpose purpose = Purpose::run) {
  std::vector<Override> overrides;
  for (const auto& set : sets) {
    auto parsed = parse_override(set);
    if (!parsed) return std::move(parsed).error();
    overrides.push_back(*parsed);
  }
  return parse_config(text, "c.yaml", overrides, purpose);
}

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
  EXPECT_DOUBLE_EQ(config->job.grace_seconds, 30);
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
  collectives: gloo
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
  EXPECT_EQ(config->parallel.collectives, "gloo");
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

TEST(ClusterConfig, tells_all_sections_where_nothing_is_near) {
  const auto config = parse("model: {path: x}\nqqqqqqqqqqqq: 1", {}, Purpose::check);
  ASSERT_FALSE(config.ok());
  for (const KeySpec& spec : config_schema()) {
    const std::string section(spec.key.substr(0, spec.key.find('.')));
    EXPECT_NE(config.error().message.find(section), std::string::npos) << section;
  }
}

TEST(ClusterConfig, takes_one_served_name_without_brackets) {
  const auto config = parse("model: {path: x, served_model_name: tales}", {}, Purpose::check);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->model.served_model_name, std::vector<std::string>{"tales"});
}

struct Mistake {
  const char* name;
  std::string text;
  std::vector<std::string> sets;
  std::string message;
};

class ConfigMistake : public testing::TestWithParam<Mistake> {};

TEST_P(ConfigMistake, gets_exactly_this_message) {
  const auto& [name, text, sets, message] = GetParam();
  const auto config = parse(text, sets);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().message, message);
  EXPECT_EQ(config.error().code, ErrorCode::invalid_argument);
}

std::string with(const std::string& lines) { return std::string(minimal) + lines; }

INSTANTIATE_TEST_SUITE_P(
    Table, ConfigMistake,
    testing::Values(
        Mistake{"misspelt",
                with("parallel:\n  tensor_paralel_size: 2\n"),
                {},
                "c.yaml:4: unknown key parallel.tensor_paralel_size; did you mean "
                "parallel.tensor_parallel_size?"},
        Mistake{"swapped",
                with("engine:\n  blokc_size: 16\n"),
                {},
                "c.yaml:4: unknown key engine.blokc_size; did you mean engine.block_size?"},
        Mistake{"dashes",
                with("engine:\n  max-num-seqs: 16\n"),
                {},
                "c.yaml:4: unknown key engine.max-num-seqs; did you mean engine.max_num_seqs?"},
        Mistake{"wrong_section",
                with("engine:\n  tensor_parallel_size: 2\n"),
                {},
                "c.yaml:4: unknown key engine.tensor_parallel_size; did you mean "
                "parallel.tensor_parallel_size?"},
        Mistake{"misspelt_section",
                with("paralel: {tensor_parallel_size: 2}\n"),
                {},
                "c.yaml:3: unknown key paralel; did you mean parallel?"},
        Mistake{"leaf_at_top",
                with("tensor_parallel_size: 2\n"),
                {},
                "c.yaml:3: unknown key tensor_parallel_size; did you mean "
                "parallel.tensor_parallel_size?"},
        Mistake{"nothing_near",
                with("cluster: {zzzzzz: 2}\n"),
                {},
                "c.yaml:3: unknown key cluster.zzzzzz; known here: launch, hosts, device, "
                "devices_per_node, network"},
        Mistake{"type_integer",
                with("engine: {block_size: two}\n"),
                {},
                "c.yaml:3: engine.block_size: expected one of 8, 16, 32, 64, 128, found the text "
                "\"two\""},
        Mistake{"quoted_integer",
                with("engine: {max_num_seqs: \"8\"}\n"),
                {},
                "c.yaml:3: engine.max_num_seqs: expected an integer, found the text \"8\""},
        Mistake{"fraction",
                with("engine: {max_num_seqs: 8.5}\n"),
                {},
                "c.yaml:3: engine.max_num_seqs: expected an integer, found the number 8.5"},
        Mistake{"auto_integer",
                with("engine: {kv_cache_blocks: many}\n"),
                {},
                "c.yaml:3: engine.kv_cache_blocks: expected an integer or auto, found the text "
                "\"many\""},
        Mistake{"type_boolean",
                with("parallel: {sequence_parallel: yes}\n"),
                {},
                "c.yaml:3: parallel.sequence_parallel: expected true or false, found the text "
                "\"yes\""},
        Mistake{
            "type_list", with("name: [a, b]\n"), {}, "c.yaml:3: name: expected text, found a list"},
        Mistake{"type_nothing",
                with("engine:\n  block_size:\n"),
                {},
                "c.yaml:4: engine.block_size: expected one of 8, 16, 32, 64, 128, found nothing"},
        Mistake{"choice",
                with("cluster: {launch: kubernetes}\n"),
                {},
                "c.yaml:3: cluster.launch: expected one of local, ssh, slurm, found the text "
                "\"kubernetes\""},
        Mistake{"range_low",
                with("parallel: {tensor_parallel_size: 0}\n"),
                {},
                "c.yaml:3: parallel.tensor_parallel_size: expected an integer from 1 to 1024, "
                "found 0"},
        Mistake{"range_high",
                with("engine: {gpu_memory_utilization: 1.5}\n"),
                {},
                "c.yaml:3: engine.gpu_memory_utilization: expected a number from 0.01 to 1, found "
                "1.5"},
        Mistake{"range_huge",
                with("engine: {max_num_seqs: 99999999999999999999}\n"),
                {},
                "c.yaml:3: engine.max_num_seqs: expected an integer, found the number "
                "99999999999999999999"},
        Mistake{"section_scalar",
                with("engine: fast\n"),
                {},
                "c.yaml:3: engine is a section: expected keys below it, found the text \"fast\""},
        Mistake{"duplicate_key",
                with("engine:\n  block_size: 16\n  block_size: 32\n"),
                {},
                "c.yaml:5: engine.block_size is given twice, first in line 4"},
        Mistake{"duplicate_section",
                with("job: {seed: 1}\n"),
                {},
                "c.yaml:3: job is given twice, first in line 2"},
        Mistake{"not_a_mapping",
                "- a\n- b\n",
                {},
                "c.yaml:1: expected sections (model: ...), found a list"},
        Mistake{"only_text",
                "hello\n",
                {},
                "c.yaml:1: expected sections (model: ...), found the text \"hello\""},
        Mistake{"empty",
                "",
                {},
                "c.yaml:1: the file is empty; it needs at least model: {path: FOLDER}"},
        Mistake{"only_comments",
                "# nothing\n\n",
                {},
                "c.yaml:1: the file is empty; it needs at least model: {path: FOLDER}"},
        Mistake{"syntax",
                "model: {path: x\njob: [\n",
                {},
                "c.yaml:2: not valid YAML: end of map flow not found"},
        Mistake{"two_documents",
                "model: {path: x}\n---\nmodel: {path: y}\n",
                {},
                "c.yaml:3: a second document (---); one file is one topology"},
        Mistake{"missing_all",
                "name: x\n",
                {},
                "c.yaml: model.path is missing: the folder of the checkpoint\n"
                "c.yaml: job.input is missing: the requests; or give --input FILE\n"
                "c.yaml: job.output is missing: where answers go; or give --output FILE"},
        Mistake{"empty_path",
                "model: {path: ''}\njob: {input: a, output: b}\n",
                {},
                "c.yaml:1: model.path: expected text, found the text \"\""},
        Mistake{"set_unknown",
                std::string(minimal),
                {"engine.blocksize=32"},
                "--set engine.blocksize=32: unknown key engine.blocksize; did you mean "
                "engine.block_size?"},
        Mistake{"set_without_section",
                std::string(minimal),
                {"block_size=32"},
                "--set block_size=32: unknown key block_size; did you mean engine.block_size?"},
        Mistake{"set_section",
                std::string(minimal),
                {"engine=32"},
                "--set engine=32: engine is a section, not a key"},
        Mistake{"set_type",
                std::string(minimal),
                {"engine.max_num_seqs=few"},
                "--set engine.max_num_seqs=few: engine.max_num_seqs: expected an integer, found "
                "the text \"few\""},
        Mistake{"set_bad_yaml",
                std::string(minimal),
                {"cluster.hosts=[a"},
                "--set cluster.hosts=[a: the value is not valid YAML: end of sequence flow not "
                "found"},
        Mistake{"set_no_equals",
                std::string(minimal),
                {"engine.block_size"},
                "--set engine.block_size: expected key=value, e.g. --set engine.block_size=32"},
        Mistake{"all_at_once",
                with("engine:\n  blocksize: 1\n  max_num_seqs: many\n"),
                {"parallel.tensor_parallel_size=two"},
                "c.yaml:4: unknown key engine.blocksize; did you mean engine.block_size?\n"
                "c.yaml:5: engine.max_num_seqs: expected an integer, found the text \"many\"\n"
                "--set parallel.tensor_parallel_size=two: parallel.tensor_parallel_size: expected "
                "an integer, found the text \"two\""}),
    [](const auto& info) { return info.param.name; });

TEST(ClusterConfig, prints_what_it_can_read_again_without_input_and_output_too) {
  const auto config = parse_config("model: {path: m}\n", "c.yaml", {}, Purpose::check);
  ASSERT_TRUE(config.ok()) << config.error().message;
  const std::string printed = to_yaml(*config);
  const auto again = parse_config(printed, "printed", {}, Purpose::check);
  ASSERT_TRUE(again.ok()) << again.error().message << "\n" << printed;
  EXPECT_EQ(to_yaml(*again), printed);
}

TEST(ClusterConfig, refuses_what_a_later_version_runs) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"parallel.context_parallel_size=2", "2 is not in this version; it runs 1"},
      {"parallel.collectives=nccl", "nccl is not in this version; it runs auto, shm, gloo"},
      {"parallel.placement=spread", "spread is not in this version; it runs pack"},
      {"cluster.launch=ssh", "ssh is not in this version; it runs local"},
      {"cluster.hosts=[gpu01]", "a list with entries is not in this version; it runs []"},
      {"cluster.network=eth0", "eth0 is not in this version; it runs auto"},
      {"engine.deterministic=false", "false is not in this version; it runs auto, true"},
      {"model.dtype=float16", "float16 is not in this version; it runs auto, float32, bfloat16"},
  };
  for (const auto& [set, message] : table) {
    const auto config = parse(minimal, {set});
    ASSERT_FALSE(config.ok()) << set;
    const std::string key = set.substr(0, set.find('='));
    EXPECT_EQ(config.error().message, fmt::format("--set {}: {}: {}", set, key, message));
  }
  for (std::string_view key : later_config_keys()) {
    const auto config = parse(minimal, {fmt::format("{}=1", key)});
    ASSERT_FALSE(config.ok()) << key;
    EXPECT_EQ(config.error().message,
              fmt::format("--set {}=1: {} is not in this version", key, key));
  }
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

TEST(ClusterConfig, tells_ten_mistakes_and_counts_the_rest) {
  std::string text(minimal);
  text += "engine:\n";
  for (int i = 0; i < 14; ++i) text += fmt::format("  zzzz{}: 1\n", i);
  const auto config = parse(text);
  ASSERT_FALSE(config.ok());
  const std::string& message = config.error().message;
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 10) << message;
  EXPECT_TRUE(message.ends_with("\n... and 4 more")) << message;
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
  const auto folder =
      std::filesystem::path(testing::TempDir()) / fmt::format("troupe_config_{}", ::getpid());
  std::filesystem::create_directories(folder);
  const auto missing = load_config((folder / "none.yaml").string(), {}, Purpose::run);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_NE(missing.error().message.find("none.yaml: no such file"), std::string::npos)
      << missing.error().message;
  const auto directory = load_config(folder.string(), {}, Purpose::run);
  ASSERT_FALSE(directory.ok());
  EXPECT_NE(directory.error().message.find("this is a folder"), std::string::npos);
  std::ofstream(folder / "big.yaml") << std::string((1 << 20) + 10, '#');
  const auto big = load_config((folder / "big.yaml").string(), {}, Purpose::run);
  ASSERT_FALSE(big.ok());
  EXPECT_NE(big.error().message.find("over 1 MiB"), std::string::npos) << big.error().message;
  std::ofstream(folder / "good.yaml") << minimal;
  EXPECT_TRUE(load_config((folder / "good.yaml").string(), {}, Purpose::run).ok());
  std::filesystem::remove_all(folder);
}

TEST(ClusterConfig, ships_configurations_that_are_valid) {
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(TROUPE_SOURCE_DIR "/configs")) {
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
}  // namespace troupe
