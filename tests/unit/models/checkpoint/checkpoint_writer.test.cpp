#include "models/checkpoint/checkpoint_writer.hpp"

#include <array>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "models/checkpoint/checkpoint.hpp"
#include "runtime/process/temporary_folder.hpp"

namespace troupe {
namespace {

TEST(CheckpointWriter, writes_what_a_checkpoint_reads_in_several_files) {
  auto folder = TemporaryFolder::create("troupe-test");
  ASSERT_TRUE(folder.ok()) << folder.error().message;
  std::array<float, 6> numbers{1, 2, 3, 4, 5, 6};
  std::array<BFloat16, 3> narrow{to_bfloat16(1), to_bfloat16(2), to_bfloat16(-3)};
  const std::vector<NamedTensor> tensors{{"a.weight", Tensor(numbers.data(), DType::f32, {2, 3})},
                                         {"b.weight", Tensor(narrow.data(), DType::bf16, {3})},
                                         {"c.weight", Tensor(numbers.data(), DType::f32, {3, 2})}};
  const auto written = write_checkpoint(folder->path(), tensors, 25);
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_TRUE(std::filesystem::exists(folder->path() / "model-00002-of-00002.safetensors"));

  const auto checkpoint = Checkpoint::open(folder->path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->names().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const auto found = checkpoint->stored_weight(name, tensor.shape());
    ASSERT_TRUE(found.ok()) << found.error().message;
    ASSERT_EQ(found->view.dtype(), tensor.dtype());
    EXPECT_EQ(std::memcmp(found->view.data(), tensor.data(), tensor.bytes()), 0) << name;
    EXPECT_GE(found->file, 0);
    std::vector<std::byte> read(tensor.bytes());
    ASSERT_EQ(::pread(found->file, read.data(), read.size(), static_cast<off_t>(found->offset)),
              static_cast<ssize_t>(read.size()));
    EXPECT_EQ(std::memcmp(read.data(), tensor.data(), read.size()), 0) << name;
  }
}

TEST(CheckpointWriter, says_where_it_cannot_write) {
  const std::array<float, 1> number{1};
  const std::vector<NamedTensor> tensors{
      {"a", Tensor(const_cast<float*>(number.data()), DType::f32, {1})}};
  const auto written = write_checkpoint("/nowhere/at/all", tensors, 1 << 20);
  ASSERT_FALSE(written.ok());
  EXPECT_NE(written.error().message.find("/nowhere/at/all/model-00001"), std::string::npos)
      << written.error().message;
}

}  // namespace
}  // namespace troupe
