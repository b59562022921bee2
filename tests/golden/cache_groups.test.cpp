#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"
#include "tests/support/same_bits.hpp"

// A model whose layers alternate between full attention and windows. Its cache groups have their
// own block tables over one pool of blocks.

namespace troupe::golden {
namespace {

constexpr std::int64_t block_size = 16;

/// qwen2-a with a window of `window` positions in its first and last layers.
class Hybrid {
 public:
  explicit Hybrid(std::int64_t window) {
    const std::filesystem::path source = data_folder() / "qwen2-a";
    auto object = nlohmann::json::parse(file_bytes(source / "config.json"));
    object["use_sliding_window"] = true;
    object["sliding_window"] = window;
    object["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
    folder_.write("config.json", object.dump());
    std::filesystem::create_symlink(source / "model.safetensors",
                                    folder_.path() / "model.safetensors");
  }
  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

std::vector<std::int32_t> prompt() {
  const auto prompts = read_prompts(data_folder() / "qwen2-a" / "logits.safetensors");
  std::vector<std::int32_t> ids;
  if (!prompts.ok()) return ids;
  for (const GoldenPrompt& one : *prompts) ids.insert(ids.end(), one.ids.begin(), one.ids.end());
  return ids;
}

Result<std::vector<float>> logits_of(Runner& runner, std::int32_t chunk) {
  std::vector<float> logits;
  Sequence sequence{prompt()};
  TROUPE_CHECK(runner.feed(sequence, chunk, logits));
  return logits;
}

TEST(CacheGroups, of_a_hybrid_model_share_its_cache_tensors) {
  const Hybrid hybrid(32);
  REQUIRE_OK(const auto loaded, load(hybrid.folder(), DType::f32));
  EXPECT_EQ(cache_groups(loaded.model->config()).size(), 3U);
  // One layer of a group x KV x 16 tokens x 1 head x 32, in f32.
  EXPECT_EQ(loaded.model->kv_bytes_per_block(), std::size_t{2} * 16 * 32 * 4);
}

TEST(CacheGroups, of_a_hybrid_model_give_the_same_bits_however_it_is_cut_and_spread) {
  const Hybrid hybrid(32);
  REQUIRE_OK(const auto loaded, load(hybrid.folder(), DType::f32));
  REQUIRE_OK(const auto expected, logits_of(*loaded.runner, whole));
  ASSERT_GT(expected.size() / 512, 100U) << "a prompt much longer than the window";
  for (const std::int32_t chunk : {1, 7, 40}) {
    REQUIRE_OK(const auto again, load(hybrid.folder(), DType::f32));
    REQUIRE_OK(const auto found, logits_of(*again.runner, chunk));
    expect_same_bits(found, expected, "passes of " + std::to_string(chunk) + " tokens");
  }
  for (const MeshShape shape :
       {MeshShape{.pipeline = 2}, MeshShape{.tensor = 2}, MeshShape{.context = 2}}) {
    for (const std::int32_t chunk : {7, 40}) {
      REQUIRE_OK(const auto ranks,
                 run_ranks(hybrid.folder(), DType::f32, {.shape = shape},
                           [&](Runner& runner, int) { return logits_of(runner, chunk); }));
      expect_same_bits(ranks.back(), expected, "the last of two ranks");
    }
  }
}

TEST(CacheGroups, with_a_window_that_hides_nothing_give_the_bits_of_full_attention) {
  const std::vector<std::int32_t> ids = prompt();
  const Hybrid hybrid(static_cast<std::int64_t>(ids.size()));
  REQUIRE_OK(const auto windowed, load(hybrid.folder(), DType::f32));
  REQUIRE_OK(const auto full, load(data_folder() / "qwen2-a", DType::f32));
  REQUIRE_OK(const auto found, logits_of(*windowed.runner, 16));
  REQUIRE_OK(const auto expected, logits_of(*full.runner, 16));
  expect_same_bits(found, expected, "a window as long as the prompt");
}

TEST(CacheGroups, of_windows_hold_no_more_blocks_than_the_window_and_a_pass_need) {
  const auto golden = golden_model("mistral-a");
  REQUIRE_OK(const auto loaded, load(golden->checkpoint, DType::f32));
  Sequence sequence{prompt()};
  for (std::int32_t token = 0; token < std::ssize(sequence.tokens); ++token) {
    const Share share{&sequence, 1, 0};
    const auto passed = loaded.runner->pass({&share, 1});
    ASSERT_TRUE(passed.ok()) << passed.error().message;
    const auto held = std::ranges::count_if(sequence.tables.at(0), [](int b) { return b >= 0; });
    ASSERT_LE(held, 32 / block_size + 1) << "after " << token + 1 << " tokens";
  }
}

}  // namespace
}  // namespace troupe::golden
