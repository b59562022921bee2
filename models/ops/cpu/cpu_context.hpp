#pragma once

#include <cstdint>
#include <new>
#include <vector>

#include "models/ops/cpu/cpu_ops.hpp"
#include "models/ops/cpu/kernels.hpp"
#include "models/ops/cpu/thread_pool.hpp"

namespace troupe {

// Waking the team costs a few microseconds; less work than this stays on the caller. Measured in
// bytes touched, at roughly 10 bytes a nanosecond.
inline constexpr std::int64_t parallel_bytes = 64 * 1024;

/// The components of the CPU's Ops share this: kernels, threads and their scratch memory.
class CpuContext {
 public:
  CpuContext(const CpuOpsOptions& options, const Kernels& kernels)
      : dtype_(options.dtype), kernels_(kernels), pool_(options.threads, options.cores_are_shared) {
    scratch_.resize(options.threads);
    reserve_scratch(4096);
  }

  DType dtype() const { return dtype_; }  ///< the model's
  const Kernels& kernels() const { return kernels_; }
  ThreadPool& pool() { return pool_; }

  /// Throws std::bad_alloc.
  void reserve_scratch(std::int64_t floats) {
    for (HostTensor& scratch : scratch_) {
      if (scratch->elements() < floats) scratch = HostTensor(DType::f32, Shape{floats});
    }
  }
  /// GemmJob::peak of products from now on; null: none.
  void set_peak(float* peak) { peak_ = peak; }
  float* peak() const { return peak_; }

  float* scratch(int member) const { return scratch_[member]->as<float>(); }

  /// Calls body(begin, end, member) for parts of [0, rows), on the team if `bytes` is worth it.
  template <class Body>
  void for_rows(std::int64_t rows, std::int64_t bytes, Body&& body) {
    if (rows < 2 || bytes < parallel_bytes || pool_.size() == 1) {
      if (rows > 0) body(std::int64_t{0}, rows, 0);
      return;
    }
    pool_.run([&](int member) {
      const Range range = split_evenly(rows, member, pool_.size());
      if (range.begin < range.end) body(range.begin, range.end, member);
    });
  }

 private:
  DType dtype_;
  const Kernels& kernels_;
  ThreadPool pool_;
  std::vector<HostTensor> scratch_;  // one a member
  float* peak_ = nullptr;
};

/// Allocates zeroed memory. Errors: resource_exhausted, which names the requested bytes.
Result<DeviceTensor> allocate_on_cpu(DType dtype, const Shape& shape);

inline std::int64_t row_bytes(const Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.bytes());
}

}  // namespace troupe
