#include "models/ops/cuda/gemm/invariant_autotuner.hpp"

#include <algorithm>
#include <utility>

#include "models/ops/cuda/gemm/cublaslt_heuristic.hpp"
#include "models/ops/cuda/gemm/invariant_gemm_kernel.hpp"

namespace troupe {
namespace {

constexpr int max_candidates = 12;
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
        stream_(tuner.stream_.get()),
        weight_(weight),
        x_(noise_bytes(kind), stream_),
        expected_(out_bytes(kind), stream_),
        found_(out_bytes(kind), stream_),
        parts_(kind.segments > 1 ? parts_bytes(kind) : 16, stream_),
        flush_(flush_bytes, stream_),
        workspace_(tuner.workspace_bytes_, stream_),
        differ_(sizeof(unsigned), stream_) {
    if (!has_memory()) return;
    fill_with_noise(x_.get(), noise_bytes(kind), stream_);
    cudaMemsetAsync(flush_.get(), 0, flush_bytes, stream_);
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
      return launch_invariant_gemm(own, stream_) == cudaSuccess;
    }
    const GemmMemory memory{.weight = weight_,
                            .x = x,
                            .out = kind.segments > 1 ? parts_.get() : found_.get(),
                            .workspace = workspace_.get(),
                            .workspace_bytes = tuner_.workspace_bytes_};
    const cublasStatus_t status =
        run_cublaslt_gemm(tuner_.handle_, segments_of(kind), *algorithm, memory, stream_);
    if (status != CUBLAS_STATUS_SUCCESS) return false;
    return kind.segments == 1 ||
           add_segments(static_cast<const float*>(parts_.get()), kind.segments, kind.rows * kind.n,
                        found_.get(), kind.out, stream_) == cudaSuccess;
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

  float fastest_ms(const GemmKind& kind, const cublasLtMatmulAlgo_t* algorithm) const {
    return troupe::fastest_ms([&] { return run(kind, algorithm); }, flush_, stream_);
  }

 private:
  /// True if it gives the bits of launch_invariant_gemm in this round.
  bool agrees(const GemmKind& kind, const cublasLtMatmulAlgo_t& algorithm,
              std::int64_t round) const {
    const std::size_t bytes = out_bytes(kind) / sizeof(unsigned) * sizeof(unsigned);
    unsigned differ = 1;
    cudaMemsetAsync(differ_.get(), 0, sizeof differ, stream_);
    cudaMemsetAsync(found_.get(), 0xff, bytes, stream_);
    if (!run(kind, &algorithm, round)) return false;
    compare_bits(expected_.get(), found_.get(), bytes, static_cast<unsigned*>(differ_.get()),
                 stream_);
    cudaMemcpyAsync(&differ, differ_.get(), sizeof differ, cudaMemcpyDeviceToHost, stream_);
    return cudaStreamSynchronize(stream_) == cudaSuccess && differ == 0;
  }

  const InvariantAutotuner& tuner_;
  cudaStream_t stream_;
  const void* weight_;
  StreamMemory x_, expected_, found_, parts_, flush_, workspace_, differ_;
};

InvariantAutotuner::InvariantAutotuner(cublasLtHandle_t handle, std::size_t workspace_bytes,
                                       TuningFile file)
    : handle_(handle), workspace_bytes_(workspace_bytes), file_(std::move(file)) {
  for (const auto& [kind, algorithm] : file_.read()) {
    if (kind.segments > max_invariant_segments) continue;
    if (algorithm && !is_usable(handle_, segments_of(kind), *algorithm, workspace_bytes_)) continue;
    chosen_.insert_or_assign(kind, algorithm);
  }
}

const cublasLtMatmulAlgo_t* InvariantAutotuner::choose(const GemmKind& kind, const void* weight,
                                                       cudaStream_t stream) {
  auto found = chosen_.find(kind);
  if (found == chosen_.end()) {
    let_work_end(stream);
    found = chosen_.emplace(kind, fastest(kind, weight)).first;
    cudaStreamSynchronize(stream_.get());  // frees its memory
  }
  return found->second ? &*found->second : nullptr;
}

InvariantAutotuner::Choice InvariantAutotuner::fastest(const GemmKind& kind, const void* weight) {
  const std::size_t operands =
      static_cast<std::size_t>(kind.rows * kind.k) * size_of(kind.in) + 2 * out_bytes(kind);
  if (stream_.get() == nullptr || operands > max_operand_bytes) return std::nullopt;
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
  file_.append({kind, best});
  return best;
}

}  // namespace troupe
