#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/checkpoint/checkpoint.hpp"
#include "models/checkpoint/gguf_checkpoint.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"

namespace troupe {
namespace {

using golden::TemporaryFolder;
using testing::HasSubstr;

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string text_of(std::string_view text) {
  return bytes_of(std::uint64_t{text.size()}) + std::string(text);
}

struct Written {
  std::string name;
  std::vector<std::uint64_t> extents;  ///< the first one's elements lie side by side
  std::uint32_t type = 0;
  std::string data;
};

/// A file of the architecture qwen3 with these tensors, each at a multiple of 32 bytes; `heads`,
/// if any, are llama's.
std::string gguf_bytes(const std::vector<Written>& tensors, std::string_view architecture = "qwen3",
                       std::uint32_t version = 3, std::uint32_t heads = 0) {
  std::string head = "GGUF" + bytes_of(version) + bytes_of(std::uint64_t{tensors.size()}) +
                     bytes_of(std::uint64_t{heads > 0 ? 2U : 1U});
  head += text_of("general.architecture") + bytes_of(std::uint32_t{8}) + text_of(architecture);
  if (heads > 0) {
    head += text_of("llama.attention.head_count") + bytes_of(std::uint32_t{4}) + bytes_of(heads);
  }
  std::string data;
  for (const Written& tensor : tensors) {
    head += text_of(tensor.name) + bytes_of(static_cast<std::uint32_t>(tensor.extents.size()));
    for (const std::uint64_t extent : tensor.extents) head += bytes_of(extent);
    head += bytes_of(tensor.type) + bytes_of(std::uint64_t{data.size()});
    data += tensor.data;
    data.resize((data.size() + 31) / 32 * 32);
  }
  head.resize((head.size() + 31) / 32 * 32);
  return head + data;
}

std::string real_bytes() {
  return golden::file_bytes(golden::data_folder() / "gguf" / "llama-q8_0" / "model.gguf");
}

void expect_refused(const std::string& bytes, ErrorCode code, const std::string& part) {
  const TemporaryFolder folder;
  folder.write("model.gguf", bytes);
  const auto opened = GgufCheckpoint::open(folder.path());
  ASSERT_FALSE(opened.ok()) << "expected a refusal with " << part;
  EXPECT_EQ(opened.error().code, code);
  EXPECT_THAT(opened.error().message, HasSubstr("model.gguf"));
  EXPECT_THAT(opened.error().message, HasSubstr(part));
}

TEST(GgufFile, gives_values_and_places) {
  REQUIRE_OK(const auto file,
             GgufFile::open(golden::data_folder() / "gguf" / "llama-q8_0" / "model.gguf"));
  EXPECT_EQ(file.text("general.architecture"), "llama");
  EXPECT_EQ(file.integer("llama.attention.head_count_kv"), 2);
  EXPECT_EQ(file.integer("general.architecture"), std::nullopt);
  EXPECT_EQ(file.text("troupe.numbers"), std::nullopt);  // a list
  const auto* const embedding = file.find("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_THAT(embedding->extents, testing::ElementsAre(512, 64));
  EXPECT_EQ(embedding->type, 8U);
  EXPECT_EQ(file.find("nothing"), nullptr);
}

TEST(GgufFile, refuses_what_is_no_gguf_file) {
  expect_refused("GGML" + std::string(60, '\0'), ErrorCode::corrupt_data, "not a GGUF file");
  expect_refused("", ErrorCode::corrupt_data, "ends early");
  expect_refused(gguf_bytes({}, "qwen3", 1), ErrorCode::unsupported, "version 1");
  expect_refused(gguf_bytes({}, "qwen3", 0x03000000), ErrorCode::unsupported, "little endian");
  expect_refused(gguf_bytes({}, "mamba"), ErrorCode::unsupported, "mamba");
}

TEST(GgufFile, refuses_files_that_are_cut_short_wherever) {
  const std::string whole = real_bytes();
  for (std::size_t size = 0; size < whole.size(); size += 1 + size / 8) {
    const TemporaryFolder folder;
    folder.write("model.gguf", std::string_view(whole).substr(0, size));
    const auto opened = GgufCheckpoint::open(folder.path());
    ASSERT_FALSE(opened.ok()) << size;
    EXPECT_THAT(opened.error().message, HasSubstr("cut short")) << size;
  }
}

TEST(GgufFile, refuses_tensors_that_contradict_themselves) {
  const std::string eight(32, 'x');
  const auto refused = [](const Written& tensor, const std::string& part) {
    expect_refused(gguf_bytes({tensor}), ErrorCode::corrupt_data, part);
  };
  refused({"a", {9}, 0, eight}, "tensor a: 36 bytes");
  refused({"a", {33}, 8, eight}, "no whole blocks of Q8_0");
  refused({"a", {}, 0, eight}, "0 extents");
  refused({"a", {1, 1, 1, 1, 1}, 0, eight}, "5 extents");
  refused({"a", {std::uint64_t{1} << 62, 8}, 0, eight}, "tensor a: extents");
  refused({"a", {std::numeric_limits<std::uint64_t>::max()}, 0, eight}, "tensor a: extents");
  expect_refused(gguf_bytes({{"a", {8}, 0, eight}, {"a", {8}, 0, eight}}), ErrorCode::corrupt_data,
                 "twice");
}

TEST(GgufCheckpoint, says_what_is_wrong_with_a_tensor) {
  const TemporaryFolder folder;
  folder.write("model.gguf",
               gguf_bytes({{"output_norm.weight", {8}, 0, std::string(32, '\0')},
                           {"output.weight", {32}, 20, std::string(32, '\0')},
                           {"token_embd.weight", {32, 1}, 8, std::string(34, '\0')}}));
  REQUIRE_OK(const auto opened, GgufCheckpoint::open(folder.path()));
  ASSERT_TRUE(opened.has_value());
  const auto expect_error = [&](const char* name, const Shape& shape, ErrorCode code,
                                const char* part) {
    const auto found = opened->stored_weight(name, shape);
    ASSERT_FALSE(found.ok()) << name;
    EXPECT_EQ(found.error().code, code) << name;
    EXPECT_THAT(found.error().message, HasSubstr(part));
  };
  expect_error("model.layers.0.mlp.up_proj.weight", {8, 8}, ErrorCode::not_found,
               "missing tensor model.layers.0.mlp.up_proj.weight");
  expect_error("model.norm.weight", {9}, ErrorCode::corrupt_data, "output_norm.weight");
  expect_error("lm_head.weight", {32}, ErrorCode::unsupported, "type 20");
  EXPECT_TRUE(opened->stored_weight("model.norm.weight", {8}).ok());
  EXPECT_TRUE(opened->stored_weight("model.embed_tokens.weight", {1, 32}).ok());
}

TEST(GgufCheckpoint, finds_scales_that_are_not_finite) {
  const std::string infinity = bytes_of(std::uint16_t{0x7C00});
  const std::string good(34, '\0'), bad = infinity + std::string(32, '\0');
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  folder.write("model.gguf",
               gguf_bytes({{"token_embd.weight", {64, 2}, 8, good + good + good + bad},
                           {"output.weight", {64, 2}, 8, good + good + good + good}}));
  REQUIRE_OK(const auto checkpoint, Checkpoint::open(folder.path()));
  const auto check = [&](const char* name) -> Result<void> {
    TROUPE_TRY(const auto weight, checkpoint.stored_weight(name, {2, 64}));
    return checkpoint.check_scales(name, weight);
  };
  EXPECT_TRUE(check("lm_head.weight").ok());
  const auto broken = check("model.embed_tokens.weight");
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message, HasSubstr("block 3"));
}

TEST(GgufCheckpoint, puts_biases_of_llamas_queries_and_keys_back_into_order) {
  std::string data;
  for (const float number : {0.0F, 2.0F, 1.0F, 3.0F, 4.0F, 6.0F, 5.0F, 7.0F}) {
    data += bytes_of(number);
  }
  const TemporaryFolder folder;
  folder.write("model.gguf", gguf_bytes({{"blk.0.attn_q.bias", {8}, 0, data},
                                         {"blk.0.attn_k.bias", {8}, 0, data},
                                         {"blk.0.attn_v.bias", {8}, 0, data}},
                                        "llama", 3, 2));
  REQUIRE_OK(const auto opened, GgufCheckpoint::open(folder.path()));
  ASSERT_TRUE(opened.has_value());
  for (const char* const part : {"q", "k"}) {
    REQUIRE_OK(
        const auto bias,
        opened->stored_weight(fmt::format("model.layers.0.self_attn.{}_proj.bias", part), {8}));
    std::vector<float> numbers(8);
    copy_rows({.matrix = bias, .rows = {0, 8}, .cols = {0, 1}}, 0, 8, DType::f32, numbers.data());
    EXPECT_THAT(numbers, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7)) << part;
  }
  REQUIRE_OK(const auto values, opened->stored_weight("model.layers.0.self_attn.v_proj.bias", {8}));
  EXPECT_EQ(values.view.as<float>()[1], 2.0F);
}

TEST(GgufCheckpoint, takes_the_parts_of_a_file_and_no_two_models) {
  const auto part = [](const char* tensor) {
    return gguf_bytes({{tensor, {8}, 0, std::string(32, '\0')}});
  };
  const TemporaryFolder folder;
  folder.write("m-00001-of-00002.gguf", part("output_norm.weight"));
  folder.write("m-00002-of-00002.gguf", part("blk.0.attn_norm.weight"));
  REQUIRE_OK(const auto opened, GgufCheckpoint::open(folder.path()));
  ASSERT_TRUE(opened.has_value());
  EXPECT_TRUE(opened->contains("model.norm.weight"));
  EXPECT_TRUE(opened->contains("model.layers.0.input_layernorm.weight"));
  folder.write("other.gguf", part("output_norm.weight"));
  const auto several = GgufCheckpoint::open(folder.path());
  ASSERT_FALSE(several.ok());
  EXPECT_THAT(several.error().message, HasSubstr("keep one model"));
  const TemporaryFolder empty;
  REQUIRE_OK(const auto none, GgufCheckpoint::open(empty.path()));
  EXPECT_FALSE(none.has_value());
}

}  // namespace
}  // namespace troupe
