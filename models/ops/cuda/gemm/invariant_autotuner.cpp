#include "models/ops/cuda/gemm/invariant_autotuner.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include <fmt/format.h>

#include "models/ops/cuda/gemm/cublaslt_heuristic.hpp"
#include "models/ops/cuda/gemm/gemm_autotuner.hpp"
#include "models/ops/cuda/gemm/invariant_gemm_kernel.hpp"
#include "models/ops/cuda/gemm/tuning_memory.hpp"
#include "models/ops/cuda/gemm/tuning_run.hpp"

namespace troupe {
namespace {

constexpr int max_candidates = 12;
constexpr int runs = 4;
constexpr float enough_ms = 4.0F;  // total of measured runs
constexpr std::size_t max_operand_bytes = std::size_t{4} << 30;
/// Another order of addition changes about one of 10,000 elements rounded to bf16 (k of 1,024):
/// comparing fewer elements than this would let such an algorithm pass.
constexpr std::int64_t min_compared = std::int64_t{1} << 18;
constexpr std::int64_t max_rounds = 512;
constexpr std::size_t round_bytes = 16;  // offset of each round's rows from the previous round's

std::size_t out_bytes(const GemmKind& kind) {
  return static_cast<std::size_t>(kind.rows * kind.n) * size_of(kind.out);
}

/// Bytes of random numbers from which the rows of all rounds are taken.
std::size_t noise_bytes(const GemmKind& kind) {
  return static_cast<std::size_t>(kind.rows * kind.k) * size_of(kind.in) +
         static_cast<std::size_t>(max_rounds) * round_bytes;
}

/// The number of comparisons for a kind of GEMM.
std::int64_t rounds_of(const GemmKind& kind) {
  return std::clamp<std::int64_t>(min_compared / (kind.rows * kind.n), 1, max_rounds);
}

/// The fewest rows whose bucket is `bucket`.
std::int64_t min_rows(std::int64_t bucket) {
  const std::int64_t lower = bucket / 4 * 3;
  if (bucket > 16 && rows_bucket(lower) == lower && lower < bucket) return lower + 1;
  return bucket > 16 ? bucket / 3 * 2 + 1 : bucket / 2 + 1;
}

}  // namespace

GemmKind segments_of(const GemmKind& kind) {
  GemmKind each = kind;
  if (kind.segments > 1) each.out = DType::f32;
  return each;
}

/// The memory and the runs for one kind of GEMM.
class InvariantAutotuner::Trial {
 public:
  Trial(const InvariantAutotuner& tuner, const GemmKind& kind, const void* weight)
      : tuner_(tuner),
        weight_(weight),
        x_(noise_bytes(kind), tuner.stream_),
        expected_(out_bytes(kind), tuner.stream_),
        found_(out_bytes(kind), tuner.stream_),
        parts_(kind.segments > 1 ? parts_bytes(kind) : 16, tuner.stream_),
        flush_(flush_bytes, tuner.stream_),
        workspace_(tuner.workspace_bytes_, tuner.stream_),
        differ_(sizeof(unsigned), tuner.stream_) {
    if (!has_memory()) return;
    fill_with_noise(x_.get(), noise_bytes(kind), tuner.stream_);
    cudaMemsetAsync(flush_.get(), 0, flush_bytes, tuner.stream_);
  }

  static std::size_t parts_bytes(const GemmKind& kind) {
    return static_cast<std::size_t>(kind.segments * kind.rows * kind.n) * sizeof(float);
  }
  bool has_memory() const {
    return x_.get() != nullptr && expected_.get() != nullptr && found_.get() != nullptr &&
           parts_.get() != nullptr && flush_.get() != nullptr && workspace_.get() != nullptr &&
           differ_.get() != nullptr;
  }

  /// Runs launch_invariant_gemm, or an algorithm; each round has other rows.
  bool run(const GemmKind& kind, const cublasLtMatmulAlgo_t* algorithm,
           std::int64_t round = 0) const {
    const void* const x =
        static_cast<const std::byte*>(x_.get()) + static_cast<std::size_t>(round) * round_bytes;
    if (algorithm == nullptr) {
      const InvariantGemmCall own{.weight = weight_,
                                  .x = x,
                                  .out = expected_.get(),
                                  .out_dtype = kind.out,
                                  .rows = kind.rows,
                                  .n = kind.n,
                                  .k = kind.k,
                                  .segments = kind.segments};
      return launch_invariant_gemm(own, tuner_.stream_) == cudaSuccess;
    }
    GemmLayout layout(segments_of(kind));
    void* const out = kind.segments > 1 ? parts_.get() : found_.get();
    const float one = 1.0F, zero = 0.0F;
    const cublasStatus_t status =
        cublasLtMatmul(tuner_.handle_, &layout.operation, &one, weight_, &layout.weight, x,
                       &layout.x, &zero, out, &layout.out, out, &layout.out, algorithm,
                       workspace_.get(), tuner_.workspace_bytes_, tuner_.stream_);
    if (status != CUBLAS_STATUS_SUCCESS) return false;
    return kind.segments == 1 ||
           add_segments(static_cast<const float*>(parts_.get()), kind.segments, kind.rows * kind.n,
                        found_.get(), kind.out, tuner_.stream_) == cudaSuccess;
  }

  /// Keeps the algorithms that give the bits of launch_invariant_gemm.
  void keep_agreeing(const GemmKind& kind, std::vector<cublasLtMatmulAlgo_t>& algorithms) const {
    for (std::int64_t round = 0; round < rounds_of(kind) && !algorithms.empty(); ++round) {
      const bool there = run(kind, nullptr, round);
      std::erase_if(algorithms, [&](const cublasLtMatmulAlgo_t& algorithm) {
        return !there || !agrees(kind, algorithm, round);
      });
    }
  }

  float fastest_ms(const GemmKind& kind, const cublasLtMatmulAlgo_t* algorithm) {
    float ms = std::numeric_limits<float>::infinity();
    float spent_ms = 0.0F;
    for (int i = 0; i <= runs && spent_ms < enough_ms; ++i) {
      read_through(flush_.get(), flush_bytes, tuner_.stream_);
      watch_.start(tuner_.stream_);
      const bool ran = run(kind, algorithm);
      const float measured = watch_.stop_ms(tuner_.stream_);
      if (!ran) return std::numeric_limits<float>::infinity();
      spent_ms += measured;
      if (i > 0 || spent_ms >= enough_ms)
        ms = std::min(ms, measured);  // the first run loads the kernel
    }
    return ms;
  }

 private:
  /// True if it gives the bits of launch_invariant_gemm in this round.
  bool agrees(const GemmKind& kind, const cublasLtMatmulAlgo_t& algorithm,
              std::int64_t round) const {
    const std::size_t bytes = out_bytes(kind) / sizeof(unsigned) * sizeof(unsigned);
    unsigned differ = 1;
    cudaMemsetAsync(differ_.get(), 0, sizeof differ, tuner_.stream_);
    cudaMemsetAsync(found_.get(), 0xff, bytes, tuner_.stream_);
    if (!run(kind, &algorithm, round)) return false;
    compare_bits(expected_.get(), found_.get(), bytes, static_cast<unsigned*>(differ_.get()),
                 tuner_.stream_);
    cudaMemcpyAsync(&differ, differ_.get(), sizeof differ, cudaMemcpyDeviceToHost, tuner_.stream_);
    return cudaStreamSynchronize(tuner_.stream_) == cudaSuccess && differ == 0;
  }

  const InvariantAutotuner& tuner_;
  const void* weight_;
  StreamMemory x_, expected_, found_, parts_, flush_, workspace_, differ_;
  Stopwatch watch_;
};

InvariantAutotuner::InvariantAutotuner(cublasLtHandle_t handle, std::size_t workspace_bytes,
                                       std::string file)
    : handle_(handle), workspace_bytes_(workspace_bytes), file_(std::move(file)) {
  if (cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess) stream_ = nullptr;
  read_file();
}

InvariantAutotuner::~InvariantAutotuner() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

const cublasLtMatmulAlgo_t* InvariantAutotuner::choose(const GemmKind& kind, const void* weight,
                                                       cudaStream_t stream) {
  auto found = chosen_.find(kind);
  if (found == chosen_.end()) {
    let_work_end(stream);
    found = chosen_.emplace(kind, fastest(kind, weight)).first;
    cudaStreamSynchronize(stream_);  // frees its memory
  }
  return found->second ? &*found->second : nullptr;
}

InvariantAutotuner::Choice InvariantAutotuner::fastest(const GemmKind& kind, const void* weight) {
  const std::size_t operands =
      static_cast<std::size_t>(kind.rows * kind.k) * size_of(kind.in) + 2 * out_bytes(kind);
  if (stream_ == nullptr || operands > max_operand_bytes) return std::nullopt;
  Trial trial(*this, kind, weight);
  if (!trial.has_memory()) return std::nullopt;
  GemmKind fewest = kind;
  fewest.rows = std::min(min_rows(kind.rows), kind.rows);
  auto candidates =
      advised_algorithms(handle_, segments_of(kind), workspace_bytes_, max_candidates, true);
  trial.keep_agreeing(kind, candidates);
  trial.keep_agreeing(fewest, candidates);
  Choice best;
  float best_ms = trial.fastest_ms(kind, nullptr);
  for (const cublasLtMatmulAlgo_t& candidate : candidates) {
    const float ms = trial.fastest_ms(kind, &candidate);
    if (ms >= best_ms) continue;
    best_ms = ms;
    best = candidate;
  }
  note(kind, best);
  return best;
}

// A line: n k rows segments in out, and the algorithm's words as cuBLASLt made them; all 0 for
// launch_invariant_gemm.
void InvariantAutotuner::read_file() {
  std::ifstream file(file_);
  for (std::string line; !file_.empty() && std::getline(file, line);) {
    std::istringstream words(line);
    GemmKind kind;
    cublasLtMatmulAlgo_t algorithm{};
    std::string in, out;
    words >> kind.n >> kind.k >> kind.rows >> kind.segments >> in >> out >> std::hex;
    for (auto& word : algorithm.data) words >> word;
    const auto in_dtype = dtype_of_name(in), out_dtype = dtype_of_name(out);
    if (!words || !in_dtype || !out_dtype || kind.n < 1 || kind.k < 1 || kind.rows < 1 ||
        kind.segments < 1 || kind.segments > max_invariant_segments) {
      continue;
    }
    kind.in = *in_dtype;
    kind.out = *out_dtype;
    if (std::ranges::all_of(algorithm.data, [](auto word) { return word == 0; })) {
      chosen_.insert_or_assign(kind, std::nullopt);
      continue;
    }
    if (!is_usable(handle_, segments_of(kind), algorithm, workspace_bytes_)) continue;
    chosen_.insert_or_assign(kind, algorithm);
  }
}

void InvariantAutotuner::note(const GemmKind& kind, const Choice& choice) const {
  if (file_.empty()) return;
  std::string line = fmt::format("{} {} {} {} {} {}", kind.n, kind.k, kind.rows, kind.segments,
                                 to_string(kind.in), to_string(kind.out));
  const cublasLtMatmulAlgo_t algorithm = choice.value_or(cublasLtMatmulAlgo_t{});
  for (const auto word : algorithm.data) line += fmt::format(" {:x}", word);
  line += "\n";
  append_tuning(file_, line);
}

}  // namespace troupe
