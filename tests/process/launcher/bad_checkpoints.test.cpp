#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/require.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double quick_seconds = 2;

std::filesystem::path good_folder() { return golden::data_folder() / "qwen3moe-a"; }

/// Expects both ways of starting the launcher to refuse `model` at once, with one message, and to
/// leave no files.
void expect_refused(const std::filesystem::path& model, const std::vector<std::string>& words) {
  SCOPED_TRACE(model.filename().string());
  for (const bool check : {true, false}) {
    const LauncherJob job(model);
    job.write_input(completion("r1", {1, 2, 3}, {{"max_tokens", 4}}));
    const Ended ended =
        job.run(check ? std::vector<std::string>{"check"} : std::vector<std::string>());
    EXPECT_EQ(ended.code, 2) << ended.describe();
    EXPECT_LT(ended.seconds, quick_seconds) << ended.describe();
    EXPECT_EQ(ended.out, "");
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(model.string()));
    for (const std::string& word : words) EXPECT_THAT(ended.err, HasSubstr(word));
    EXPECT_FALSE(std::filesystem::exists(job.output())) << "an output was left behind";
    EXPECT_FALSE(std::filesystem::exists(job.output().string() + ".job"));
    EXPECT_THAT(processes_left_in(job.folder(), std::chrono::milliseconds(0)), IsEmpty());
  }
}

TEST(BadCheckpoint, of_each_kind_is_refused_by_a_check_and_a_run_naming_file_and_cause) {
  const std::string config = golden::file_bytes(good_folder() / "config.json");
  const std::string weights = golden::file_bytes(good_folder() / "model.safetensors");
  std::string long_header = weights;
  const std::uint64_t too_long = weights.size() + 1000;
  std::memcpy(long_header.data(), &too_long, sizeof too_long);
  auto renamed = json::parse(config);
  renamed["architectures"] = {"FooBarForCausalLM"};
  renamed["model_type"] = "foobar";
  auto wider = json::parse(config);
  wider["hidden_size"] = 96;
  REQUIRE_OK(const auto checkpoint, Checkpoint::open(good_folder()));
  auto tensors = golden::read_all(checkpoint);
  const std::string lost = "model.layers.0.self_attn.o_proj.weight";
  ASSERT_EQ(tensors.erase(lost), 1U);

  struct Case {
    std::string name, config, weights;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases = {
      {"truncated", config, weights.substr(0, weights.size() * 6 / 10), {"model.safetensors"}},
      {"missing-tensor", config, golden::safetensors_bytes(tensors), {lost}},
      {"unknown-architecture", renamed.dump(), weights, {"config.json", "FooBarForCausalLM"}},
      {"config-not-json", "{\"hidden_size\": 64,\n bad: 1,}", weights, {"config.json:2", "JSON"}},
      {"long-header", config, long_header, {"model.safetensors", "header"}},
      {"no-config", "", weights, {"config.json"}},
      {"another-size", wider.dump(), weights, {"model.safetensors", "96"}},
  };
  const golden::TemporaryFolder models;
  for (const Case& bad : cases) {
    std::filesystem::create_directory(models.path() / bad.name);
    if (!bad.config.empty()) models.write(bad.name + "/config.json", bad.config);
    models.write(bad.name + "/model.safetensors", bad.weights);
    expect_refused(models.path() / bad.name, bad.words);
  }
}

/// A folder with the demo's small files and the weights of a tiny model.
class ChangedCheckpoint {
 public:
  explicit ChangedCheckpoint(const std::string& name) : path_(root_.path() / name) {
    std::filesystem::create_directory(path_);
    for (const char* file : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(good_folder() / file, path_ / file);
    }
    for (const char* file : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
      std::filesystem::copy_file(demo_model() / file, path_ / file);
    }
  }
  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& file, std::string_view bytes) const {
    root_.write(path_.filename().string() + "/" + file, bytes);
  }
  void remove(const std::string& file) const { std::filesystem::remove(path_ / file); }

 private:
  golden::TemporaryFolder root_;
  std::filesystem::path path_;
};

TEST(BadCheckpoint, with_a_config_that_contradicts_itself_or_the_weights_names_key_or_tensor) {
  struct Case {
    std::string key;
    json value;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases = {
      {"hidden_size", -64, {"config.json", "hidden_size", "-64"}},
      {"hidden_size", "64", {"config.json", "hidden_size", "64"}},
      {"num_hidden_layers", 0, {"config.json", "num_hidden_layers", "0"}},
      {"num_key_value_heads", 3, {"config.json", "num_key_value_heads", "3"}},
      {"head_dim", 31, {"config.json", "head_dim", "31"}},
      {"num_experts_per_tok", 99, {"config.json", "num_experts_per_tok", "99"}},
      {"num_hidden_layers", 9, {"missing tensor model.layers.3."}},
      {"vocab_size", 513, {"model.embed_tokens.weight", "513", "512"}},
      {"moe_intermediate_size", 128, {"mlp.experts.0.", "128"}},
      {"hidden_act", "gelu", {"config.json", "hidden_act", "gelu"}},
      {"quantization_config", {{"bits", 4}}, {"config.json", "quantization_config"}},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.key + " " + bad.value.dump());
    const ChangedCheckpoint model("changed");
    auto config = json::parse(golden::file_bytes(good_folder() / "config.json"));
    config[bad.key] = bad.value;
    model.write("config.json", config.dump());
    expect_refused(model.path(), bad.words);
  }
}

TEST(BadCheckpoint, with_broken_weight_files_names_file_and_tensor) {
  REQUIRE_OK(const auto checkpoint, Checkpoint::open(good_folder()));
  const auto tensors = golden::read_all(checkpoint);
  const std::string norm = "model.norm.weight";
  {
    const ChangedCheckpoint model("index-of-a-missing-file");
    model.remove("model.safetensors");
    model.write("model.safetensors.index.json",
                R"({"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}})");
    expect_refused(model.path(), {"model-00001-of-00002.safetensors", "no such file"});
  }
  {
    const ChangedCheckpoint model("index-of-a-missing-tensor");
    std::filesystem::rename(model.path() / "model.safetensors", model.path() / "one.safetensors");
    model.write("model.safetensors.index.json",
                R"({"weight_map": {"model.nrom.weight": "one.safetensors"}})");
    expect_refused(model.path(), {"model.nrom.weight", "one.safetensors"});
  }
  {
    const ChangedCheckpoint model("overlapping-tensors");
    model.write("model.safetensors",
                golden::safetensors_bytes(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                                          R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                                          "1234"));
    expect_refused(model.path(), {"model.safetensors", "a and b overlap"});
  }
  for (const std::string dtype : {"I64", "F64", "X9"}) {
    auto changed = tensors;
    changed.at(norm).dtype = dtype;
    if (dtype != "X9") changed.at(norm).bytes = std::string(64 * 8, 'x');
    const ChangedCheckpoint model("norm-of-dtype-" + dtype);
    model.write("model.safetensors", golden::safetensors_bytes(changed));
    expect_refused(model.path(), {"model.safetensors", norm});
  }
  {
    const ChangedCheckpoint model("empty-weight-file");
    model.write("model.safetensors", "");
    expect_refused(model.path(), {"model.safetensors", "not a safetensors file"});
  }
  {
    const ChangedCheckpoint model("weights-that-are-a-web-page");
    model.write("model.safetensors", "<!DOCTYPE html><html><body>404</body></html>");
    expect_refused(model.path(), {"model.safetensors"});
  }
}

TEST(BadCheckpoint, with_a_broken_tokenizer_names_the_file) {
  const std::vector<std::pair<std::string, std::string>> files = {
      {"tokenizer.json", "{\"model\": "},
      {"tokenizer.json", "[]"},
      {"tokenizer.json", R"({"model": {"type": "Unigram", "vocab": []}})"},
      {"tokenizer_config.json", "{"},
      {"generation_config.json", R"({"temperature": "hot"})"},
  };
  for (const auto& [file, content] : files) {
    SCOPED_TRACE(content);
    const ChangedCheckpoint model("changed");
    model.write(file, content);
    expect_refused(model.path(), {file});
  }
}

TEST(BadCheckpoint, with_a_broken_template_is_checked_with_a_warning_that_names_the_file) {
  const ChangedCheckpoint model("changed");
  model.write("chat_template.jinja", "{% for message in messages %}{{ message.content }}");
  const LauncherJob job(model.path());
  job.write_input(completion("r1", {1, 2, 3}, {{"max_tokens", 4}}));
  const Ended ended = job.run({"check"});
  EXPECT_EQ(ended.code, 0) << ended.describe();
  EXPECT_THAT(ended.out + ended.err, HasSubstr("chats will be refused, completions will not: "));
  EXPECT_THAT(ended.out + ended.err, HasSubstr("chat_template.jinja:1: expected endfor"));
}

TEST(BadCheckpoint, that_is_no_folder_of_a_model_says_what_was_looked_for) {
  const golden::TemporaryFolder root;
  std::filesystem::create_directory(root.path() / "empty");
  expect_refused(root.path() / "empty", {"model.path", "config.json"});
  expect_refused(root.write("a-file.gguf", "GGUF"), {"model.path"});
  expect_refused(root.path() / "nowhere", {"model.path"});
}

/// The words expected in the error about a checkpoint of the golden folder: its file, and the cause
/// given in expect.json. An unknown one fails the test.
std::vector<std::string> words_of(const std::string& name) {
  const std::map<std::string, std::vector<std::string>> words = {
      {"truncated-safetensors", {"model.safetensors", "cut short"}},
      {"missing-tensor", {"model.layers.1.mlp.up_proj.weight"}},
      {"unknown-architecture", {"config.json", "FooBarForCausalLM"}},
      {"config-not-json", {"config.json", "JSON"}},
      {"header-longer-than-file", {"model.safetensors", "header"}},
      {"no-config", {"config.json"}},
      {"tensor-of-another-size", {"model.safetensors", "48", "32"}},
  };
  const auto found = words.find(name);
  EXPECT_NE(found, words.end()) << name << " is new: say which words are to be told of it";
  return found == words.end() ? std::vector<std::string>() : found->second;
}

TEST(BadCheckpoint, of_the_golden_folder_is_refused) {
  const auto folder = golden::outside_folder() / "golden" / "bad" / "checkpoints";
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << golden::missing_model_message("bad/checkpoints");
  }
  const json expectations = json::parse(golden::file_bytes(folder / "expect.json"));
  for (const auto& [name, expected] : expectations.items()) {
    SCOPED_TRACE(expected.dump());
    const std::string expectation = expected.at("expect");
    if (expectation.starts_with("refuse to load")) {
      expect_refused(folder / name, words_of(name));
    } else {
      EXPECT_EQ(expectation, "loads and answers");
      const Answers answers =
          answers_to(completion("r1", "Once", {{"max_tokens", 4}}), {}, 0, folder / name);
      EXPECT_TRUE(answers.at("r1").ok());
    }
  }
}

TEST(GoodCheckpoint, without_a_tokenizer_answers_token_ids_and_refuses_text) {
  const Answers answers =
      answers_to(completion("ids", {1, 2, 3},
                            {{"max_tokens", 4}, {"temperature", 0}, {"return_token_ids", true}}) +
                     completion("text", "Once", {{"max_tokens", 4}}),
                 {}, 1, good_folder());
  ASSERT_TRUE(answers.at("ids").ok()) << answers.at("ids").record;
  EXPECT_EQ(answers.at("ids").choice().at("token_ids").size(), 4U);
  ASSERT_FALSE(answers.at("text").ok());
  EXPECT_THAT(answers.at("text").record.at("error").dump(), HasSubstr("tokenizer.json"));
}

}  // namespace
}  // namespace troupe::launcher_test
