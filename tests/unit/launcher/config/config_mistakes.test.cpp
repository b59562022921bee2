#include <algorithm>

#include <gtest/gtest.h>

#include "launcher/config/cluster_config.hpp"
#include "launcher/config/config_schema.hpp"
#include "tests/unit/launcher/config/config_text.hpp"

// Messages about mistakes in a YAML.

namespace troupe::config_test {
namespace {

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

INSTANTIATE_TEST_SUITE_P(
    Table, ConfigMistake,
    testing::Values(
        Mistake{"misspelt",
                with("parallel:\n  tensor_paralel_size: 2\n"),
                {},
                "c.yaml:4: unknown key parallel.tensor_paralel_size; did you mean "
                "parallel.tensor_parallel_size?"},
        Mistake{"no_effect_in_the_file",
                with("kv_cache:\n  window_tokens: 1020\n"),
                {},
                "c.yaml:4: kv_cache.window_tokens has no effect where kv_cache.policy is full: "
                "leave it out, or set kv_cache.policy: streaming or snapkv or h2o"},
        Mistake{"no_effect_by_set",
                with("kv_cache: {policy: streaming}\n"),
                {"kv_cache.heavy_tokens=64"},
                "--set kv_cache.heavy_tokens=64: kv_cache.heavy_tokens has no effect where "
                "kv_cache.policy is streaming: leave it out, or set kv_cache.policy: h2o"},
        Mistake{"a_head_in_8_bits_alone",
                with(""),
                {"model.quantize_lm_head=true"},
                "--set model.quantize_lm_head=true: model.quantize_lm_head has no effect where "
                "model.quantization is none: leave it out, or set model.quantization: fp8 or int8 "
                "or w8a8 or w4a16"},
        Mistake{"a_head_in_a_format",
                with(""),
                {"model.quantization=fp8", "model.quantize_lm_head=fp8"},
                "--set model.quantize_lm_head=fp8: model.quantize_lm_head: expected true or false "
                "or auto, found the text \"fp8\""},
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
                "c.yaml:3: unknown key cluster.zzzzzz; known here: launch, hosts, copy_program, "
                "device, devices_per_node, network, listen, nodes, token_file, join_timeout, "
                "elastic, spares, ports"},
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
                "c.yaml:3: cluster.launch: expected one of local, ssh, slurm, join, found the text "
                "\"kubernetes\""},
        Mistake{"renamed_choice",
                with("parallel: {collectives: gloo}\n"),
                {},
                "c.yaml:3: parallel.collectives: 'gloo' is called 'network' now"},
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

TEST(ConfigMistakes, refuses_what_a_later_version_runs) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"parallel.placement=spread", "spread is not in this version; it runs pack"},
      {"engine.deterministic=false", "false is not in this version; it runs auto, true"},
      {"model.dtype=float16", "float16 is not in this version; it runs auto, float32, bfloat16"},
  };
  for (const auto& [set, message] : table) {
    const auto config = parse(minimal, {set});
    ASSERT_FALSE(config.ok()) << set;
    const std::string key = set.substr(0, set.find('='));
    EXPECT_EQ(config.error().message, fmt::format("--set {}: {}: {}", set, key, message));
  }
}

TEST(ConfigMistakes, tells_ten_mistakes_and_counts_the_rest) {
  std::string text(minimal);
  text += "engine:\n";
  for (int i = 0; i < 14; ++i) text += fmt::format("  zzzz{}: 1\n", i);
  const auto config = parse(text);
  ASSERT_FALSE(config.ok());
  const std::string& message = config.error().message;
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 10) << message;
  EXPECT_TRUE(message.ends_with("\n... and 4 more")) << message;
}

TEST(ConfigMistakes, tells_all_sections_where_nothing_is_near) {
  const auto config = parse("model: {path: x}\nqqqqqqqqqqqq: 1", {}, Purpose::check);
  ASSERT_FALSE(config.ok());
  for (const KeySpec& spec : config_schema()) {
    const std::string section(spec.key.substr(0, spec.key.find('.')));
    EXPECT_NE(config.error().message.find(section), std::string::npos) << section;
  }
}

}  // namespace
}  // namespace troupe::config_test
