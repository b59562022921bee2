#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/source_path.hpp"

namespace troupe::launcher_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

fs::path tiny_model() { return test::source_path("tests/data/golden/llama-a"); }

std::vector<std::string> command(const std::string& output,
                                 const std::vector<std::string>& more = {},
                                 const fs::path& model = demo_model()) {
  std::vector<std::string> all = {"quantize", "--model", model.string(), "--output", output};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// A text for calibration: sentences of the demo's kind.
void write_text(const fs::path& path) {
  std::ofstream file(path);
  for (int i = 0; i < 400; ++i) {
    file << "Once upon a time there was a girl who had " << i
         << " boats. She liked the sea, and her brother liked the small dog. ";
  }
}

/// All files below a folder and their bytes.
std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files[fs::relative(entry.path(), folder).string()] = golden::file_bytes(entry.path());
  }
  return files;
}

TEST(LauncherQuantize, makes_checkpoints_that_answer_almost_like_the_model) {
  const LauncherJob job;
  write_text(job.folder() / "t.txt");
  std::ofstream(job.folder() / "judged.txt")
      << "One day a boy found a red ball near the old tree. He was very happy. He gave the ball to "
         "his sister, and they played until the sun went down.";
  const std::vector<std::vector<std::string>> ways = {
      {"--scheme", "fp8"},
      {"--scheme", "int8", "--method", "smoothquant", "--calibrate", "t.txt"},
      {"--scheme", "w4a16", "--method", "gptq", "--calibrate", "t.txt", "--group-size", "32"},
      {"--scheme", "w4a16", "--method", "awq", "--calibrate", "t.txt", "--group-size", "32"},
      {"--scheme", "mxfp4"},
      {"--scheme", "nvfp4", "--method", "gptq", "--calibrate", "t.txt"},
      {"--scheme", "nvfp4", "--method", "awq", "--calibrate", "t.txt", "--scales", "mse"},
  };
  for (std::size_t i = 0; i < ways.size(); ++i) {
    SCOPED_TRACE(ways[i][1]);
    const std::string output = "made" + std::to_string(i);
    // A search of nvfp4's scales for each step of AWQ's is a minute of two slow cores.
    const Ended ended = job.run_plain(command(output, ways[i]), 3 * run_limit);
    ASSERT_EQ(ended.code, 0) << ended.describe();
    EXPECT_TRUE(fs::exists(job.folder() / output / "tokenizer.json"));
    EXPECT_TRUE(fs::exists(job.folder() / output / "sensitive_layers.json"));
    EXPECT_FALSE(fs::exists(job.folder() / output / ".quantize"));
    const Ended judged =
        job.run_plain({"eval", "--config", "cluster.yaml", "--text", "judged.txt", "--against",
                       output, "--max-perplexity-increase", "60%", "--greedy-prompts", "0"});
    EXPECT_EQ(judged.code, 0) << judged.describe();
  }
  // Codes of int8 are multiplied with activations as int8 if asked, those of fp8 are no int8 ones.
  const Ended rounded =
      job.run_plain({"eval", "--config", "cluster.yaml", "--text", "judged.txt", "--against",
                     "made1", "--against-set", "model.quantization=w8a8",
                     "--max-perplexity-increase", "60%", "--greedy-prompts", "0"});
  EXPECT_EQ(rounded.code, 0) << rounded.describe();
  EXPECT_THAT(rounded.out, HasSubstr("w8a8"));
  const Ended twice =
      job.run_plain({"check", "--model", "made1", "--set", "model.quantization=fp8"});
  EXPECT_EQ(twice.code, 2) << twice.describe();
  EXPECT_THAT(twice.err, HasSubstr("would be rounded twice"));
}

/// All tensors of a checkpoint; none if it cannot be opened.
std::map<std::string, golden::RawTensor> tensors_of(const fs::path& folder) {
  const auto checkpoint = Checkpoint::open(folder);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  if (!checkpoint.ok()) return {};
  return golden::read_all(*checkpoint);
}

TEST(LauncherQuantize, finds_scales_of_an_fp8_kv_cache_and_leaves_weights_as_they_are) {
  const LauncherJob job;
  write_text(job.folder() / "t.txt");
  std::ofstream(job.folder() / "judged.txt")
      << "One day a boy found a red ball near the old tree. He was very happy. He gave the ball to "
         "his sister, and they played until the sun went down.";
  ASSERT_EQ(job.run_plain(command("w4", {"--scheme", "w4a16", "--group-size", "32"})).code, 0);
  const std::vector<fs::path> models = {demo_model(), job.folder() / "w4"};
  for (const fs::path& model : models) {
    SCOPED_TRACE(model.string());
    const std::string output = model == demo_model() ? "kv" : "w4-kv";
    const Ended ended =
        job.run_plain(command(output, {"--scheme", "kv-fp8", "--calibrate", "t.txt"}, model));
    ASSERT_EQ(ended.code, 0) << ended.describe();
    auto made = tensors_of(job.folder() / output);
    const auto before = tensors_of(model);
    ASSERT_EQ(made.size(), before.size() + 2 * 4) << "two scales for each layer";
    for (const auto& [name, tensor] : before) EXPECT_EQ(made[name].bytes, tensor.bytes) << name;
    for (const char* name : {"k_scale", "v_scale"}) {
      const auto& scale = made[std::string("model.layers.3.self_attn.") + name];
      EXPECT_EQ(scale.dtype, "F32");
      EXPECT_EQ(scale.shape, std::vector<std::int64_t>{1});
      float number = 0.0F;
      ASSERT_EQ(scale.bytes.size(), sizeof number);
      std::memcpy(&number, scale.bytes.data(), sizeof number);
      EXPECT_GT(number, 1e-5F) << name;
      EXPECT_LT(number, 1.0F) << name;
    }
    const auto config =
        nlohmann::json::parse(golden::file_bytes(job.folder() / output / "config.json"));
    const auto& quantization = config["quantization_config"];
    EXPECT_EQ(quantization["quant_method"], "compressed-tensors");
    EXPECT_EQ(quantization["kv_cache_scheme"]["num_bits"], 8);
    EXPECT_EQ(quantization["kv_cache_scheme"]["type"], "float");
    EXPECT_EQ(quantization["kv_cache_scheme"]["dynamic"], false);
    EXPECT_EQ(quantization["config_groups"].size(), model == demo_model() ? 0U : 1U);
    const auto against = [&](const std::string& dtype) {
      return job.run_plain({"eval", "--config", "cluster.yaml", "--set",
                            "model.path=" + model.string(), "--text", "judged.txt", "--against",
                            output, "--against-set", "kv_cache.dtype=" + dtype,
                            "--max-perplexity-increase", "5%", "--greedy-prompts", "0"});
    };
    const Ended fp8 = against("fp8_e4m3"), without = against("auto");
    EXPECT_EQ(fp8.code, 0) << fp8.describe();
    EXPECT_THAT(fp8.out, HasSubstr("KV fp8_e4m3"));
    EXPECT_EQ(without.code, 0) << without.describe();
  }
  // Scales that are there are found anew.
  ASSERT_EQ(job.run_plain(command("again", {"--scheme", "kv-fp8", "--calibrate", "t.txt"},
                                  job.folder() / "kv"))
                .code,
            0);
  EXPECT_EQ(golden::file_bytes(job.folder() / "again/model-00002-of-00005.safetensors"),
            golden::file_bytes(job.folder() / "kv/model-00002-of-00005.safetensors"));
}

TEST(LauncherQuantize, sets_weights_to_zero_and_keeps_the_format) {
  const LauncherJob job;
  write_text(job.folder() / "t.txt");
  const std::vector<std::vector<std::string>> ways = {
      {"--scheme", "sparse-2:4"},
      {"--scheme", "sparse-2:4", "--method", "wanda", "--calibrate", "t.txt"},
      {"--scheme", "sparse-rows", "--method", "wanda", "--calibrate", "t.txt", "--sparsity", "10%"},
  };
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const std::string output = "made" + std::to_string(i);
    const Ended ended = job.run_plain(command(output, ways[i]));
    ASSERT_EQ(ended.code, 0) << ended.describe();
    const auto figures =
        nlohmann::json::parse(golden::file_bytes(job.folder() / output / "sensitive_layers.json"));
    EXPECT_EQ(figures["method"], i == 0 ? "magnitude" : "wanda");
    EXPECT_GT(figures["layers"][0]["divergence"], 0.0);
    const auto config =
        nlohmann::json::parse(golden::file_bytes(job.folder() / output / "config.json"));
    EXPECT_FALSE(config.contains("quantization_config"));
    const Ended checked = job.run_plain({"check", "--model", output});
    EXPECT_EQ(checked.code, 0) << checked.describe();
  }
}

TEST(LauncherQuantize, goes_on_after_a_kill_and_makes_the_same_files) {
  const LauncherJob job;
  write_text(job.folder() / "t.txt");
  const std::vector<std::string> how = {
      "--scheme", "w4a16",     "--method", "gptq", "--calibrate", "t.txt", "--calibrate-windows",
      "8",        "--threads", "1"};
  ASSERT_EQ(job.run_plain(command("whole", how)).code, 0);

  const fs::path prints = job.folder() / "prints";
  fs::create_directories(prints);
  const fs::path journal = job.folder() / "cut/.quantize/journal.jsonl";
  {
    LauncherProcess process(command("cut", how), job.folder(), prints);
    ASSERT_TRUE(process.wait_for_text(journal, "\"layer\":1", run_limit));
    process.signal(SIGKILL);
    EXPECT_EQ(process.wait(run_limit).code, 128 + SIGKILL);
  }
  EXPECT_FALSE(fs::exists(job.folder() / "cut/config.json"));
  const Ended other = job.run_plain(command("cut", {"--scheme", "fp8"}));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("begun by another command"), HasSubstr("--scheme")));

  const Ended ended = job.run_plain(command("cut", how));
  ASSERT_EQ(ended.code, 0) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("goes on"));
  EXPECT_EQ(files_of(job.folder() / "cut"), files_of(job.folder() / "whole"));
}

// The goldens' logits are other readers' (tests/golden/quantized.test.cpp): what is written now
// must be what they read.
TEST(LauncherQuantize, writes_what_other_readers_were_asked_about) {
  const LauncherJob job;
  const fs::path goldens = test::source_path("tests/data/golden/quantized");
  const std::vector<std::vector<std::string>> ways = {
      {"troupe-fp8", "--scheme", "fp8"},
      {"troupe-w4a16", "--scheme", "w4a16", "--group-size", "64"},
      {"troupe-mxfp4", "--scheme", "mxfp4"},
      {"troupe-nvfp4", "--scheme", "nvfp4"}};
  for (const auto& way : ways) {
    SCOPED_TRACE(way.front());
    const Ended ended =
        job.run_plain(command(way.front(), {way.begin() + 1, way.end()}, tiny_model()));
    ASSERT_EQ(ended.code, 0) << ended.describe();
    for (const auto& entry : fs::directory_iterator(goldens / way.front())) {
      const fs::path name = entry.path().filename();
      if (name == "logits.safetensors") continue;
      EXPECT_EQ(golden::file_bytes(job.folder() / way.front() / name),
                golden::file_bytes(entry.path()))
          << name;
    }
  }
}

// vLLM keeps one of the scales that query, key and value, or gate and up, have for a whole matrix.
TEST(LauncherQuantize, gives_what_is_multiplied_as_one_the_same_nvfp4_scale_of_all) {
  const LauncherJob job;
  const fs::path experts = tiny_model().parent_path() / "qwen3moe-a";
  for (const auto& [output, model] : {std::pair("dense", tiny_model()), {"moe", experts}}) {
    const Ended ended = job.run_plain(command(output, {"--scheme", "nvfp4"}, model));
    ASSERT_EQ(ended.code, 0) << ended.describe();
  }
  const auto made = tensors_of(job.folder() / "dense"),
             of_experts = tensors_of(job.folder() / "moe");
  const auto scale_of = [](const auto& tensors, const std::string& module) {
    float scale = 0.0F;
    const auto& tensor = tensors.at(module + ".weight_global_scale");
    EXPECT_EQ(tensor.dtype, "F32");
    EXPECT_EQ(tensor.shape, std::vector<std::int64_t>{1});
    std::memcpy(&scale, tensor.bytes.data(), sizeof scale);
    return scale;
  };
  const std::string layer = "model.layers.1.", attention = layer + "self_attn.";
  const float query = scale_of(made, attention + "q_proj");
  EXPECT_GT(query, 0.0F);
  EXPECT_EQ(scale_of(made, attention + "k_proj"), query);
  EXPECT_EQ(scale_of(made, attention + "v_proj"), query);
  EXPECT_NE(scale_of(made, attention + "o_proj"), query);
  const float gate = scale_of(made, layer + "mlp.gate_proj");
  EXPECT_EQ(scale_of(made, layer + "mlp.up_proj"), gate);
  EXPECT_NE(scale_of(made, layer + "mlp.down_proj"), gate);
  EXPECT_NE(gate, query);
  const std::string experts_of = "model.layers.0.mlp.experts.";  // the next layer has none
  const float of_first = scale_of(of_experts, experts_of + "0.gate_proj");
  EXPECT_EQ(scale_of(of_experts, experts_of + "0.up_proj"), of_first);
  EXPECT_NE(scale_of(of_experts, experts_of + "1.gate_proj"), of_first);
}

/// Where a tensor's bytes begin in a safetensors file.
std::size_t place_of(const std::string& file, const std::string& tensor) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const auto header = nlohmann::json::parse(file.substr(sizeof length, length));
  return sizeof length + length + header[tensor]["data_offsets"][0].get<std::size_t>();
}

TEST(LauncherQuantize, names_a_weight_that_is_no_number_and_does_not_go_on_with_other_ones) {
  const LauncherJob job;
  const fs::path model = job.folder() / "model";
  fs::create_directories(model);
  fs::copy_file(tiny_model() / "config.json", model / "config.json");
  const std::string sound = golden::file_bytes(tiny_model() / "model.safetensors");
  const std::string tensor = "model.layers.1.mlp.down_proj.weight";
  std::string damaged = sound;
  damaged.replace(place_of(sound, tensor) + 2 * 163, 2, "\xFF\x7F");  // bf16: not a number
  std::ofstream(model / "model.safetensors", std::ios::binary) << damaged;
  const auto how = command("made", {"--scheme", "fp8"}, model);
  const Ended ended = job.run_plain(how);
  EXPECT_EQ(ended.code, 3) << ended.describe();
  EXPECT_THAT(ended.err, AllOf(HasSubstr(tensor), HasSubstr("row 1, column 3 is nan")));

  std::ofstream(model / "model.safetensors", std::ios::binary) << sound;
  const Ended other = job.run_plain(how);
  EXPECT_EQ(other.code, 2) << other.describe();
  EXPECT_THAT(other.err, AllOf(HasSubstr("model.safetensors of --model was"),
                               HasSubstr("another --output, or remove it")));
}

TEST(LauncherQuantize, keeps_the_worst_layers_within_the_budget) {
  const LauncherJob job;
  const Ended ended = job.run_plain(command("kept", {"--scheme", "w4a16", "--group-size", "32",
                                                     "--keep", "auto", "--keep-budget", "20%"}));
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const auto figures =
      nlohmann::json::parse(golden::file_bytes(job.folder() / "kept/sensitive_layers.json"));
  const auto& layers = figures["layers"];
  ASSERT_EQ(layers.size(), 4U);
  EXPECT_TRUE(layers[0]["kept"]) << "the worst is the first";
  EXPECT_FALSE(layers[3]["kept"]);
  const Ended checked = job.run_plain({"check", "--model", "kept"});
  EXPECT_EQ(checked.code, 0) << checked.describe();
}

TEST(LauncherQuantize, says_what_to_do_about_what_it_refuses) {
  const LauncherJob job;
  const auto refusal = [&](const std::vector<std::string>& arguments) {
    const Ended ended = job.run_plain(arguments);
    EXPECT_EQ(ended.code, 2) << ended.describe();
    return ended.err;
  };
  EXPECT_THAT(refusal({"quantize"}), HasSubstr("which model? Give --model"));
  EXPECT_THAT(refusal(command("o")), HasSubstr("--scheme fp8, int8, w4a16, mxfp4 or nvfp4"));
  EXPECT_THAT(refusal(command("o", {"--scheme", "int3"})), HasSubstr("found int3"));
  EXPECT_THAT(refusal(command("o", {"--scheme", "fp8", "--method", "gptq", "--calibrate", "x"})),
              HasSubstr("--method gptq is for int8, w4a16, mxfp4 and nvfp4"));
  EXPECT_THAT(refusal(command("o", {"--scheme", "w4a16", "--method", "awq"})),
              HasSubstr("--calibrate FILE"));
  EXPECT_THAT(refusal(command("o", {"--scheme", "sparse-2:4", "--method", "gptq"})),
              HasSubstr("goes by --method magnitude or wanda"));
  EXPECT_THAT(refusal(command("o", {"--scheme", "fp8", "--method", "wanda"})),
              HasSubstr("--method wanda is for sparse-2:4 and sparse-rows"));
  EXPECT_THAT(refusal(command("o", {"--scheme", "sparse-rows", "--sparsity", "100%"})),
              HasSubstr("a share below 100%"));
  EXPECT_THAT(refusal(command("o", {"--scheme", "sparse-2:4", "--keep", "auto"})),
              HasSubstr("leave layers out with --ignore"));
  EXPECT_THAT(refusal(command("o", {"--scheme", "w4a16", "--method", "awq", "--calibrate", "no"})),
              HasSubstr("no"));
  EXPECT_THAT(refusal(command("o", {"--scheme", "kv-fp8"})), HasSubstr("--calibrate FILE"));
  EXPECT_THAT(refusal(command("o", {"--scheme", "kv-fp8", "--calibrate", "x", "--keep", "auto"})),
              HasSubstr("--keep auto is about weights"));
  EXPECT_THAT(refusal(command("o", {"--scheme", "kv-fp8", "--calibrate", "short.txt"},
                              tiny_model().parent_path() / "deepseek3-a")),
              HasSubstr("latent attention has no fixed scales"));
  EXPECT_THAT(refusal(command("o", {"--scheme", "fp8"}, "/nowhere")), HasSubstr("/nowhere"));
  EXPECT_THAT(refusal(command("o", {"--scheme", "fp8", "--ignore", "re:.*"})),
              HasSubstr("nothing to quantise is left"));
  std::ofstream(job.folder() / "short.txt") << "Once upon a time.";
  EXPECT_THAT(
      refusal(command("o", {"--scheme", "w4a16", "--method", "gptq", "--calibrate", "short.txt"})),
      HasSubstr("give a longer text or a smaller --calibrate-length"));
  EXPECT_FALSE(fs::exists(job.folder() / "o")) << "nothing is written before a refusal";

  fs::create_directories(job.folder() / "full");
  std::ofstream(job.folder() / "full/letter.txt") << "Dear";
  EXPECT_THAT(refusal(command("full", {"--scheme", "fp8"})), HasSubstr("something else in it"));
  EXPECT_THAT(refusal(command("full/letter.txt", {"--scheme", "fp8"})), HasSubstr("is a file"));
  ASSERT_EQ(job.run_plain(command("done", {"--scheme", "fp8"}, tiny_model())).code, 0);
  EXPECT_THAT(refusal(command("done", {"--scheme", "fp8"}, tiny_model())),
              HasSubstr("finished checkpoint already"));
  EXPECT_THAT(refusal(command("again", {"--scheme", "fp8"}, job.folder() / "done")),
              HasSubstr("is quantised already"));
}

}  // namespace
}  // namespace troupe::launcher_test
