#include <cstring>
#include <iostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/json/json_file.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::filesystem::path good_folder() { return data_folder() / "qwen3moe-a"; }

/// A folder with the good checkpoint's files, some of them replaced.
void write_checkpoint(const TemporaryFolder& folder, const std::string& config,
                      const std::string& weights) {
  folder.write("config.json", config);
  folder.write("model.safetensors", weights);
}

TEST(BadCheckpoint, of_each_kind_is_refused_with_file_and_cause) {
  const std::string config = file_bytes(good_folder() / "config.json");
  const std::string weights = file_bytes(good_folder() / "model.safetensors");
  std::string long_header = weights;
  const std::uint64_t too_long = weights.size() + 1000;
  std::memcpy(long_header.data(), &too_long, sizeof too_long);
  auto renamed = nlohmann::json::parse(config);
  renamed["architectures"] = {"FooBarForCausalLM"};
  auto wider = nlohmann::json::parse(config);
  wider["hidden_size"] = 96;

  struct Case {
    std::string config, weights, file, cause;
  };
  const std::vector<Case> cases = {
      {config, weights.substr(0, weights.size() * 6 / 10), "model.safetensors", "cut short"},
      {config, long_header, "model.safetensors", "header"},
      {"{\"hidden_size\": 64,\n bad: 1,}", weights, "config.json:2:2", "JSON"},
      {renamed.dump(), weights, "config.json", "FooBarForCausalLM"},
      {wider.dump(), weights, "model.safetensors", "expected"},
  };
  for (const Case& bad : cases) {
    const TemporaryFolder folder;
    write_checkpoint(folder, bad.config, bad.weights);
    const auto loaded = load(folder.path(), DType::f32);
    ASSERT_FALSE(loaded.ok()) << bad.cause;
    EXPECT_THAT(loaded.error().message, AllOf(HasSubstr(folder.path().string()),
                                              HasSubstr(bad.file), HasSubstr(bad.cause)));
  }
}

TEST(BadCheckpoint, of_the_golden_folder_is_refused_naming_its_file) {
  const std::filesystem::path folder = outside_folder() / "golden" / "bad" / "checkpoints";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << missing_model_message("bad/checkpoints");
  REQUIRE_OK(const auto expected, read_json_object(folder / "expect.json"));
  for (const auto& [name, what] : expected.items()) {
    const auto loaded = load(folder / name, DType::f32);
    if (name == "_good") {
      EXPECT_TRUE(loaded.ok()) << loaded.error().message;
      continue;
    }
    ASSERT_FALSE(loaded.ok()) << name << ": " << what.at("broken");
    EXPECT_THAT(loaded.error().message, HasSubstr((folder / name).string()));
    std::cout << name << ": " << loaded.error().message << '\n';
  }
}

}  // namespace
}  // namespace troupe::golden
