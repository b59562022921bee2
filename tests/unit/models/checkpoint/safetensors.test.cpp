#include "models/checkpoint/safetensors.hpp"

#include <array>
#include <cstring>
#include <fstream>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"

namespace troupe {
namespace {

using golden::safetensors_bytes;
using golden::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;

std::string tiny_bytes() {
  return golden::file_bytes(golden::data_folder() / "qwen3moe-a" / "model.safetensors");
}

void expect_refused(std::string_view bytes, const std::vector<std::string>& parts) {
  const TemporaryFolder folder;
  const auto path = folder.write("model.safetensors", bytes);
  const auto file = SafetensorsFile::open(path);
  ASSERT_FALSE(file.ok()) << "expected a refusal with " << testing::PrintToString(parts);
  EXPECT_EQ(file.error().code, ErrorCode::corrupt_data);
  EXPECT_THAT(file.error().message, HasSubstr(path.string()));
  for (const std::string& part : parts) EXPECT_THAT(file.error().message, HasSubstr(part));
}

TEST(Safetensors, gives_views_with_dtype_shape_and_values) {
  const std::array<float, 6> values{1, 2, 3, 4, 5, 6};
  const std::string data(reinterpret_cast<const char*>(values.data()), sizeof values);
  const TemporaryFolder folder;
  const auto path =
      folder.write("a.safetensors",
                   safetensors_bytes({{"x", {"F32", {2, 3}, data}}, {"none", {"I32", {0}, ""}}}));
  REQUIRE_OK(const auto file, SafetensorsFile::open(path));
  EXPECT_THAT(file.names(), ElementsAre("none", "x"));
  REQUIRE_OK(const Tensor x, file.tensor("x"));
  EXPECT_EQ(x.shape(), Shape({2, 3}));
  EXPECT_THAT(x.span<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  REQUIRE_OK(const Tensor none, file.tensor("none"));
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(file.tensor("y").error().code, ErrorCode::not_found);
}

TEST(Safetensors, views_stay_valid_when_the_file_is_moved) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.safetensors", tiny_bytes());
  REQUIRE_OK(auto file, SafetensorsFile::open(path));
  REQUIRE_OK(const Tensor before, file.tensor("model.norm.weight"));
  const SafetensorsFile moved = std::move(file);
  REQUIRE_OK(const Tensor after, moved.tensor("model.norm.weight"));
  EXPECT_EQ(before.data(), after.data());
}

TEST(Safetensors, refuses_a_file_that_was_cut_short) {
  const std::string good = tiny_bytes();
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}}) {
    expect_refused(good.substr(0, size), {"not a safetensors file"});
  }
  expect_refused(good.substr(0, 100), {"the header is said to have"});
  expect_refused(good.substr(0, good.size() * 6 / 10), {"tensor ", "cut short"});
  expect_refused(good.substr(0, good.size() - 1), {"tensor ", "cut short"});
}

TEST(Safetensors, refuses_a_header_longer_than_the_file) {
  std::string bytes = tiny_bytes();
  for (const std::uint64_t length : {std::uint64_t{bytes.size()} + 1000, ~std::uint64_t{0}}) {
    std::memcpy(bytes.data(), &length, sizeof length);
    expect_refused(bytes, {fmt::format("the header is said to have {}", length)});
  }
}

TEST(Safetensors, refuses_bytes_that_belong_to_no_tensor) {
  expect_refused(tiny_bytes() + "more", {"the last 4 bytes"});
  expect_refused(
      safetensors_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", "12345"),
      {"3 bytes before tensor a"});
}

TEST(Safetensors, refuses_headers_that_contradict_themselves) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> headers = {
      {"{", {"not valid JSON"}},
      {"[]", {"no JSON object"}},
      {R"({"a":7})", {"tensor a", "expected an object"}},
      {R"({"a":{"dtype":"U9","shape":[4],"data_offsets":[0,4]}})", {"tensor a", "dtype U9"}},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", {"tensor a", "8 bytes", "4"}},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", {"tensor a", "shape"}},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", {"tensor a", "shape"}},
      {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", {"tensor a", "shape"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", {"tensor a", "data_offsets"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", {"tensor a", "data_offsets"}},
      {R"({"a":{"dtype":"F32","shape":[1]}})", {"tensor a", "data_offsets"}},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})",
       {"tensor a", "overflows"}},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
           "a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       {"tensor a", "twice"}},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},
           "b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       {"a and b overlap"}},
  };
  for (const auto& [header, parts] : headers) {
    SCOPED_TRACE(header);
    expect_refused(safetensors_bytes(header, "1234"), parts);
  }
}

TEST(Safetensors, says_what_it_cannot_use_only_when_asked_for_it) {
  const TemporaryFolder folder;
  const auto path = folder.write(
      "a.safetensors",
      safetensors_bytes({{"x", {"F64", {1}, "12345678"}}, {"y", {"U8", {1, 1, 1, 1, 1}, "1"}}}));
  REQUIRE_OK(const auto file, SafetensorsFile::open(path));
  for (const std::string name : {"x", "y"}) {
    const auto tensor = file.tensor(name);
    ASSERT_FALSE(tensor.ok());
    EXPECT_EQ(tensor.error().code, ErrorCode::unsupported);
    EXPECT_THAT(tensor.error().message, HasSubstr(fmt::format("tensor {}", name)));
  }
}

/// A file in memory with a path.
class UniqueMemory {
 public:
  UniqueMemory() : descriptor_(::memfd_create("mutated", MFD_CLOEXEC)) {}
  ~UniqueMemory() { ::close(descriptor_); }
  UniqueMemory(const UniqueMemory&) = delete;
  UniqueMemory& operator=(const UniqueMemory&) = delete;
  std::string path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

 private:
  int descriptor_;
};

// Every view of a file that opens must lie inside it, whatever bytes were changed.
TEST(Safetensors, never_gives_a_view_outside_a_mutated_file) {
  constexpr std::uint32_t seed = 20240607;
  std::mt19937 random(seed);
  std::map<std::string, golden::RawTensor> tensors;
  for (int i = 0; i < 6; ++i) {
    tensors[fmt::format("t{}", i)] = {
        "BF16", {i, 3}, std::string(static_cast<std::size_t>(6 * i), 'x')};
  }
  const std::string good = safetensors_bytes(tensors);
  const std::string alphabet = "0123456789[]{},:\"-+.eEFB1632tx \\u\xff\n";
  const UniqueMemory memory;  // on a disk, most of the time would go to writing the file
  int opened = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    const std::size_t changes = 1 + random() % 4;
    for (std::size_t i = 0; i < changes; ++i) {
      bytes[random() % (bytes.size() - 36)] = alphabet[random() % alphabet.size()];
    }
    if (random() % 8 == 0) bytes.resize(random() % (bytes.size() + 1));
    std::ofstream(memory.path(), std::ios::binary) << bytes;
    const auto file = SafetensorsFile::open(memory.path());
    if (!file.ok()) {
      EXPECT_FALSE(file.error().message.empty());
      continue;
    }
    ++opened;
    for (const std::string& name : file->names()) {
      const auto tensor = file->tensor(name);
      if (!tensor.ok()) continue;
      EXPECT_LE(tensor->bytes(), bytes.size()) << "seed " << seed << ", round " << round;
      for (const char byte :
           std::string_view(static_cast<const char*>(tensor->data()), tensor->bytes())) {
        ASSERT_TRUE(byte == 'x' || alphabet.find(byte) != std::string::npos)
            << "seed " << seed << ", round " << round;
      }
    }
  }
  EXPECT_GT(opened, 50) << "the mutations were all fatal and checked nothing";
}

}  // namespace
}  // namespace troupe
