#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "models/ops/linear.hpp"
#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

struct StoredMatrix;

/// The progress of reading weights.
struct LoadedWeights {
  std::uint64_t bytes = 0;         ///< copied to the device
  std::uint64_t total_bytes = 0;   ///< of all requested weights
  std::uint64_t direct_bytes = 0;  ///< read from files past the page cache
  double seconds = 0.0;            ///< since the first was requested
};

/// Weights in the layout their device multiplies fastest. Errors of all: resource_exhausted.
class WeightOps {
 public:
  virtual ~WeightOps() = default;

  /// Packs `weight` [n, k] (f32, bf16 or f16, host memory, may be freed afterwards) for GEMMs in
  /// `segments` equal parts of k: a power of two that divides k; 1 for column-parallel matrices.
  virtual Result<std::unique_ptr<Linear>> prepare(const Tensor& weight, int segments,
                                                  WeightEncoding encoding) = 0;

  /// Like prepare, for `experts` matrices; weights[e] is [n, k].
  virtual Result<std::unique_ptr<GroupedLinear>> prepare_grouped(std::span<const Tensor> weights,
                                                                 int segments,
                                                                 WeightEncoding encoding) = 0;

  /// A table of rows for `embed`: [vocab_local, hidden] in the stored dtype.
  virtual Result<DeviceTensor> prepare_table(const Tensor& weight) = 0;

  /// Like prepare, prepare_grouped and prepare_table, for weights that stay in place until
  /// finish_loading(): a device with memory of its own reads them meanwhile, several at a time. The
  /// results may be used after that. Errors: also io, now or from finish_loading().
  virtual Result<std::unique_ptr<Linear>> load(const StoredMatrix& weight, int segments,
                                               WeightEncoding encoding) = 0;

  virtual Result<std::unique_ptr<GroupedLinear>> load_grouped(std::span<const StoredMatrix> weights,
                                                              int segments,
                                                              WeightEncoding encoding) = 0;

  virtual Result<DeviceTensor> load_table(const StoredMatrix& weight) = 0;

  /// Returns when all weights are read; calls `progress`, if set, now and then. Reports nothing for
  /// a device that shares the host's memory, whose weights are available at once.
  virtual Result<LoadedWeights> finish_loading(
      const std::function<void(const LoadedWeights&)>& progress) = 0;

  /// From now on products of `weight`, which rounds_rows(), leave activations as they are and widen
  /// its codes in registers (W8A16). For that the codes are rearranged once, where they are, so
  /// that no second copy is needed. Only enqueues; captured graphs with the matrix are void.
  /// Errors: unsupported, internal.
  virtual Result<void> widen(Linear& weight);
  virtual Result<void> widen(GroupedLinear& weight);

  /// A Linear that uses the memory of `table`, from prepare_table or load_table, which outlives it;
  /// null if GEMMs need another layout.
  virtual std::unique_ptr<Linear> share_table(const Tensor& table) = 0;
};

inline Result<void> WeightOps::widen(Linear& weight) {
  return fail(ErrorCode::unsupported, "a matrix [{}, {}] cannot be multiplied otherwise",
              weight.out_features(), weight.in_features());
}
inline Result<void> WeightOps::widen(GroupedLinear& weight) {
  return fail(ErrorCode::unsupported, "matrices of {} experts cannot be multiplied otherwise",
              weight.experts());
}

}  // namespace troupe
