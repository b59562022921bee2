#include "models/ops/cuda/gemm/gemm_autotuner.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "models/ops/cuda/gemm/cublaslt_heuristic.hpp"
#include "models/ops/cuda/gemm/tuning_memory.hpp"
#include "models/ops/cuda/gemm/tuning_run.hpp"

namespace troupe {
namespace {

constexpr int max_candidates = 8;
constexpr int runs = 5;
constexpr float enough_ms = 4.0F;  // total of measured runs
constexpr std::size_t max_operand_bytes = std::size_t{3} << 30;
/// Others must be this much faster than the first suggestion: a GEMM's time varies by a few percent
/// from one second to the next.
constexpr float clearly_faster = 0.95F;

}  // namespace

GemmAutotuner::GemmAutotuner(cublasLtHandle_t handle, std::size_t workspace_bytes, std::string file)
    : handle_(handle), workspace_bytes_(workspace_bytes), file_(std::move(file)) {
  if (cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess) stream_ = nullptr;
  read_file();
}

GemmAutotuner::~GemmAutotuner() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

const cublasLtMatmulAlgo_t* GemmAutotuner::choose(const GemmKind& kind, const void* weight,
                                                  cudaStream_t stream) {
  if (const auto found = chosen_.find(kind); found != chosen_.end()) return &found->second;
  const auto candidates = advised_algorithms(handle_, kind, workspace_bytes_, max_candidates);
  if (candidates.empty()) return nullptr;
  std::size_t best = 0;
  if (candidates.size() > 1 && stream_ != nullptr) {
    let_work_end(stream);
    if (const auto measured = fastest(kind, weight, candidates)) {
      best = *measured;
      note(kind, candidates[best]);
    }
    cudaStreamSynchronize(stream_);  // frees its memory
  }
  return &chosen_.emplace(kind, candidates[best]).first->second;
}

std::optional<std::size_t> GemmAutotuner::fastest(
    const GemmKind& kind, const void* weight, const std::vector<cublasLtMatmulAlgo_t>& candidates) {
  const auto rows = static_cast<std::size_t>(kind.rows);
  const std::size_t x_bytes = rows * static_cast<std::size_t>(kind.k) * size_of(kind.in);
  const std::size_t out_bytes = rows * static_cast<std::size_t>(kind.n) * size_of(kind.out);
  if (x_bytes + out_bytes > max_operand_bytes) return std::nullopt;
  const StreamMemory x(x_bytes, stream_), out(out_bytes, stream_), flush(flush_bytes, stream_),
      workspace(workspace_bytes_, stream_);
  if (x.get() == nullptr || out.get() == nullptr || flush.get() == nullptr ||
      workspace.get() == nullptr) {
    return std::nullopt;
  }
  fill_with_noise(x.get(), x_bytes, stream_);
  cudaMemsetAsync(flush.get(), 0, flush_bytes, stream_);
  GemmLayout layout(kind);
  const float one = 1.0F, zero = 0.0F;
  Stopwatch watch;
  std::size_t best = 0;
  float first_ms = 0.0F, best_ms = 0.0F;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    float ms = std::numeric_limits<float>::infinity();
    float spent_ms = 0.0F;
    for (int run = 0; run <= runs && spent_ms < enough_ms; ++run) {
      read_through(flush.get(), flush_bytes, stream_);
      watch.start(stream_);
      const cublasStatus_t status =
          cublasLtMatmul(handle_, &layout.operation, &one, weight, &layout.weight, x.get(),
                         &layout.x, &zero, out.get(), &layout.out, out.get(), &layout.out,
                         &candidates[i], workspace.get(), workspace_bytes_, stream_);
      const float measured = watch.stop_ms(stream_);
      if (status != CUBLAS_STATUS_SUCCESS) break;
      if (run == 0) continue;  // the first run loads the kernel
      ms = std::min(ms, measured);
      spent_ms += measured;
    }
    if (i == 0) first_ms = best_ms = ms;
    if (ms < best_ms && ms < clearly_faster * first_ms) {
      best = i;
      best_ms = ms;
    }
  }
  return best;
}

// A line: n k rows in out, and the algorithm's words as cuBLASLt made them.
void GemmAutotuner::read_file() {
  std::ifstream file(file_);
  for (std::string line; !file_.empty() && std::getline(file, line);) {
    std::istringstream words(line);
    GemmKind kind;
    cublasLtMatmulAlgo_t algorithm{};
    std::string in, out;
    words >> kind.n >> kind.k >> kind.rows >> in >> out >> std::hex;
    for (auto& word : algorithm.data) words >> word;
    const auto in_dtype = dtype_of_name(in), out_dtype = dtype_of_name(out);
    if (!words || !in_dtype || !out_dtype || kind.n < 1 || kind.k < 1 || kind.rows < 1) continue;
    kind.in = *in_dtype;
    kind.out = *out_dtype;
    if (!is_usable(handle_, kind, algorithm, workspace_bytes_)) continue;
    chosen_.insert_or_assign(kind, algorithm);
  }
}

void GemmAutotuner::note(const GemmKind& kind, const cublasLtMatmulAlgo_t& algorithm) const {
  if (file_.empty()) return;
  std::string line = fmt::format("{} {} {} {} {}", kind.n, kind.k, kind.rows, to_string(kind.in),
                                 to_string(kind.out));
  for (const auto word : algorithm.data) line += fmt::format(" {:x}", word);
  line += "\n";
  append_tuning(file_, line);
}

void append_tuning(const std::string& to, const std::string& line) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(to).parent_path(), ignored);
  if (std::FILE* file = std::fopen(to.c_str(), "ae"); file != nullptr) {
    std::fwrite(line.data(), 1, line.size(), file);
    std::fclose(file);
  }
}

std::string tuning_file(std::string_view what) {
  std::string folder;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    folder = cache;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    folder = std::string(home) + "/.cache";
  } else {
    return {};
  }
  int device = 0;
  cudaDeviceProp properties{};
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    return {};
  }
  std::string name = properties.name;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '-');
  return fmt::format("{}/troupe/{}-{}-cublaslt-{}.txt", folder, what, name, cublasLtGetVersion());
}

}  // namespace troupe
