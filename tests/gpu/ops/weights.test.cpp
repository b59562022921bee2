#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "models/checkpoint/checkpoint.hpp"
#include "models/checkpoint/checkpoint_writer.hpp"
#include "models/ops/stored_matrix.hpp"
#include "runtime/process/temporary_folder.hpp"
#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

constexpr std::int64_t rows = 3000, columns = 1500;  // more than a piece of a copy

/// Weights on the GPU, and their expected values.
class GpuWeights : public testing::Test {
 protected:
  void SetUp() override {
    auto folder = TemporaryFolder::create("troupe-test");
    ASSERT_TRUE(folder.ok()) << folder.error().message;
    folder_.emplace(*std::move(folder));
    const HostTensor wide(DType::f32, {rows, columns});
    const HostTensor narrow(DType::bf16, {rows, columns});
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      wide->as<float>()[i] = static_cast<float>((i * 7919) % 10007) / 331.0F - 15.0F;
      narrow->as<BFloat16>()[i] = to_bfloat16(static_cast<float>((i * 104729) % 9973) / 77.0F);
    }
    for (std::int64_t i = 0; i < codes_->elements(); ++i) {
      codes_->as<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 37 % 127);
    }
    for (int i = 0; i < 8; ++i) scales_->as<float>()[i] = 0.3F + static_cast<float>(i);
    const std::vector<NamedTensor> tensors{{"wide", wide}, {"narrow", narrow}};
    const auto written = write_checkpoint(folder_->path(), tensors, 1);
    ASSERT_TRUE(written.ok()) << written.error().message;
    auto checkpoint = Checkpoint::open(folder_->path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    checkpoint_.emplace(*std::move(checkpoint));
  }

  StoredPart part(const char* name, Slice of_rows, Slice of_columns) const {
    auto stored = checkpoint_->stored_weight(name, {rows, columns});
    EXPECT_TRUE(stored.ok()) << stored.error().message;
    return {*stored, of_rows, of_columns};
  }

  /// Of a matrix [256, 512] of fp8 codes in blocks.
  StoredPart encoded(Slice of_rows, Slice of_columns) const {
    const WeightScheme scheme{.coding = WeightCoding::fp8, .group_rows = 128, .group_columns = 128};
    return {{.view = codes_,
             .format = &weight_format(scheme.coding),
             .scheme = scheme,
             .groups = groups_of(scheme, {256, 512}),
             .companion = scales_},
            of_rows,
            of_columns};
  }

  /// Loads the matrices at once and compares each.
  void expect_loaded(Ops& ops, DType dtype, const std::vector<StoredMatrix>& matrices) {
    std::vector<DeviceTensor> tables;
    std::uint64_t bytes = 0;
    for (const StoredMatrix& matrix : matrices) {
      auto table = ops.weights().load_table(matrix);
      ASSERT_TRUE(table.ok()) << table.error().message;
      tables.push_back(*std::move(table));
      bytes += static_cast<std::uint64_t>(matrix.filled_rows() * matrix.columns) * size_of(dtype);
    }
    const auto loaded = ops.weights().finish_loading(nullptr);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(loaded->bytes, bytes);
    direct_bytes_ = loaded->direct_bytes;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      StoredMatrix expected = matrices[i];
      expected.dtype = dtype;
      const HostTensor want = in_host_memory(expected);
      const HostTensor found(dtype, want->shape());
      ops.memory().download(tables[i], found);
      ASSERT_TRUE(ops.stream().synchronize().ok());
      EXPECT_EQ(std::memcmp(found->data(), want->data(), want->bytes()), 0) << "matrix " << i;
    }
  }

  /// The product of a row of ones with the matrix in codes, f32 [1, rows].
  static std::vector<float> row_sums_of(Ops& ops, const StoredMatrix& matrix,
                                        WeightEncoding encoding) {
    const auto weight = ops.weights().load(matrix, 1, encoding);
    EXPECT_TRUE(weight.ok() && ops.weights().finish_loading(nullptr).ok());
    const HostTensor ones(DType::bf16, {1, matrix.columns}), sums(DType::f32, {1, matrix.rows});
    std::ranges::fill(ones->span<BFloat16>(), to_bfloat16(1.0F));
    const auto x = ops.memory().allocate(DType::bf16, ones->shape());
    const auto out = ops.memory().allocate(DType::f32, sums->shape());
    EXPECT_TRUE(x.ok() && out.ok());
    ops.memory().upload(ones, *x);
    ops.dense().linear(**weight, *x, *out);
    ops.memory().download(*out, sums);
    EXPECT_TRUE(ops.stream().synchronize().ok());
    return {sums->as<float>(), sums->as<float>() + sums->elements()};
  }

  /// row_sums_of a matrix that is loaded while the GPU is busy with what was enqueued before, or is
  /// not; empty without a GPU.
  std::vector<float> row_sums(WeightEncoding encoding, bool is_busy) const {
    const auto ops = make_cuda_ops({.dtype = DType::bf16, .encoding = encoding});
    if (!ops.ok()) return {};
    constexpr std::int64_t size = 8192, k = 1024, n = 2048;
    const auto slow =
        (*ops)->weights().prepare(HostTensor(DType::bf16, {size, size}), 1, WeightEncoding::plain);
    const auto x = (*ops)->memory().allocate(DType::bf16, {size, size});
    const auto out = (*ops)->memory().allocate(DType::bf16, {size, size});
    EXPECT_TRUE(slow.ok() && x.ok() && out.ok());
    if (is_busy) {
      for (int i = 0; i < 300; ++i) (*ops)->dense().linear(**slow, *x, *out);  // 0.4 s
    }
    return row_sums_of(**ops, matrix_of({part("narrow", {0, n}, {0, k})}), encoding);
  }

  static StoredMatrix matrix_of(std::vector<StoredPart> parts, std::int64_t padding = 0) {
    StoredMatrix matrix{.columns = parts.front().cols.count};
    for (const StoredPart& one : parts) matrix.rows += one.rows.count;
    matrix.rows += padding;
    matrix.parts = std::move(parts);
    return matrix;
  }

  std::vector<StoredMatrix> some_matrices() const {
    const Slice all_rows{0, rows}, all_columns{0, columns};
    return {
        matrix_of({part("narrow", all_rows, all_columns)}),
        matrix_of({part("wide", all_rows, all_columns)}),
        matrix_of({part("narrow", {101, 1700}, all_columns), part("wide", {5, 3}, all_columns)}),
        matrix_of({part("narrow", all_rows, {750, 750})}),
        matrix_of({part("wide", {7, 900}, {3, 5}), part("narrow", {1, 2000}, {9, 5})}),
        matrix_of({part("narrow", {2990, 10}, all_columns)}, 6),
        matrix_of({encoded({3, 200}, {100, 300}), encoded({0, 1}, {7, 300})})};
  }

  HostTensor codes_{DType::u8, {256, 512}};
  HostTensor scales_{DType::f32, {2, 4}};
  std::optional<TemporaryFolder> folder_;
  std::optional<Checkpoint> checkpoint_;
  std::uint64_t direct_bytes_ = 0;  // of the last load
};

TEST_F(GpuWeights, are_those_of_the_files_whatever_parts_and_types) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    auto ops = make_cuda_ops({.dtype = dtype});
    if (!ops.ok()) GTEST_SKIP() << ops.error().message;
    expect_loaded(**ops, dtype, some_matrices());
    expect_loaded(**ops, dtype, some_matrices());  // a second model, say
  }
}

TEST_F(GpuWeights, are_read_past_the_page_cache_where_they_are_not_in_it) {
  auto ops = make_cuda_ops({.dtype = DType::bf16});
  if (!ops.ok()) GTEST_SKIP() << ops.error().message;
  // A checkpoint reports this only for files larger than the page cache.
  const auto file = SafetensorsFile::open(folder_->path() / "model-00002-of-00002.safetensors");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto stored = file->stored("narrow");
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  ASSERT_EQ(::fsync(stored->file), 0);
  ASSERT_EQ(::posix_fadvise(stored->file, 0, 0, POSIX_FADV_DONTNEED), 0);
  expect_loaded(**ops, DType::bf16, {matrix_of({{*stored, {0, rows}, {0, columns}}})});
  if (stored->direct_file >= 0) {
    EXPECT_GT(direct_bytes_, 0U);
  }
}

TEST_F(GpuWeights, of_a_file_that_was_cut_short_are_an_error_that_names_it) {
  auto ops = make_cuda_ops({.dtype = DType::bf16});
  if (!ops.ok()) GTEST_SKIP() << ops.error().message;
  const StoredPart whole = part("narrow", {0, rows}, {0, columns});
  std::filesystem::resize_file(folder_->path() / "model-00002-of-00002.safetensors", 100'000);
  auto table = (*ops)->weights().load_table(matrix_of({whole}));
  ASSERT_TRUE(table.ok()) << table.error().message;
  const auto loaded = (*ops)->weights().finish_loading(nullptr);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::io);
  EXPECT_NE(loaded.error().message.find("model-00002-of-00002.safetensors"), std::string::npos)
      << loaded.error().message;
}

// Uploads write scales by streams of their own, not by the one that operations are enqueued on.
TEST_F(GpuWeights, in_codes_keep_their_scales_however_busy_the_gpu_is) {
  for (const WeightEncoding encoding : {WeightEncoding::fp8, WeightEncoding::w8a8}) {
    const std::vector<float> expected = row_sums(encoding, false);
    if (expected.empty()) GTEST_SKIP() << "no GPU";
    EXPECT_NE(expected.front(), 0.0F);
    EXPECT_EQ(row_sums(encoding, true), expected);
  }
}

TEST_F(GpuWeights, of_a_table_are_shared_with_a_head_that_is_tied_to_it) {
  auto ops = make_cuda_ops({.dtype = DType::bf16});
  if (!ops.ok()) GTEST_SKIP() << ops.error().message;
  const auto table = (*ops)->weights().load_table(matrix_of({part("narrow", {0, 64}, {0, 256})}));
  ASSERT_TRUE(table.ok()) << table.error().message;
  ASSERT_TRUE((*ops)->weights().finish_loading(nullptr).ok());
  const auto free = (*ops)->memory().available()->free_bytes;
  const auto head = (*ops)->weights().share_table(*table);
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->out_features(), 64);
  EXPECT_EQ((*ops)->memory().available()->free_bytes, free);
}

}  // namespace
}  // namespace troupe
