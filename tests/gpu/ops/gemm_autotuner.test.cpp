// The choice of cuBLASLt's algorithms.
#include "models/ops/cuda/gemm/gemm_autotuner.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace troupe {
namespace {

constexpr std::size_t workspace_bytes = 32 << 20;

/// A handle, a weight of zeros on the device, and a file's name.
class Tuning : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaMalloc(&weight_, 1024 * 512 * 2), cudaSuccess);
    ASSERT_EQ(cudaMemset(weight_, 0, 1024 * 512 * 2), cudaSuccess);
    folder_ =
        std::filesystem::temp_directory_path() / ("troupe-tuning-" + std::to_string(getpid()));
  }
  void TearDown() override {
    if (weight_ != nullptr) cudaFree(weight_);
    if (handle_ != nullptr) cublasLtDestroy(handle_);
    std::filesystem::remove_all(folder_);
  }
  std::string path() const { return (folder_ / "deep" / "gemms.txt").string(); }
  TuningFile file() const { return TuningFile(path()); }
  std::size_t lines() const {
    std::ifstream in(path());
    std::size_t count = 0;
    for (std::string line; std::getline(in, line);) ++count;
    return count;
  }

  cublasLtHandle_t handle_ = nullptr;
  void* weight_ = nullptr;
  std::filesystem::path folder_;
  const GemmKind kind_{.n = 1024, .k = 512, .rows = 64, .in = DType::bf16, .out = DType::f32};
};

TEST_F(Tuning, keeps_what_it_measured_for_the_next_process) {
  cublasLtMatmulAlgo_t first{};
  {
    GemmAutotuner tuner(handle_, workspace_bytes, file());
    const auto* chosen = tuner.choose(kind_, weight_, nullptr);
    ASSERT_NE(chosen, nullptr);
    EXPECT_EQ(tuner.choose(kind_, weight_, nullptr), chosen) << "it is measured once";
    first = *chosen;
  }
  EXPECT_EQ(lines(), 1U);
  std::ofstream(path(), std::ios::app)
      << "no line\n1024 512 64 1 bf16 i8 1 2 3\n1024 512 64 bf16 f32 1 2 3\n";
  GemmAutotuner next(handle_, workspace_bytes, file());
  const auto* chosen = next.choose(kind_, weight_, nullptr);
  ASSERT_NE(chosen, nullptr);
  EXPECT_EQ(std::memcmp(chosen, &first, sizeof first), 0);
  EXPECT_EQ(lines(), 4U) << "nothing was measured again";
}

TEST_F(Tuning, chooses_while_a_stream_is_captured) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
  GemmAutotuner tuner(handle_, workspace_bytes, file());
  EXPECT_NE(tuner.choose(kind_, weight_, stream), nullptr);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(lines(), 1U) << "it was measured";
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST(RowsBucket, grows_in_steps_that_waste_little) {
  for (std::int64_t rows = 1; rows <= 20000; ++rows) {
    const std::int64_t bucket = rows_bucket(rows);
    ASSERT_GE(bucket, rows);
    ASSERT_LE(bucket, std::max<std::int64_t>(2 * rows - 1, 1)) << rows;
    ASSERT_EQ(rows_bucket(bucket), bucket) << rows;
    if (rows > 16) {
      ASSERT_LE(2 * bucket, 3 * rows) << rows;
    }
  }
}

}  // namespace
}  // namespace troupe
