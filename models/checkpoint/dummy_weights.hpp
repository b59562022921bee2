#pragma once

#include <cstddef>
#include <string_view>

#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Weights for a model that has no files: every name has values, in any shape, which depend on the
/// name and the position alone, so they are the same on every rank and machine and in either dtype.
/// Weights with "norm" in their name are 1, all others uniform noise with a standard deviation of
/// 0.023, a typical initialisation.
///
/// All tensors are views of one pattern of 16 MiB that is mapped repeatedly: tensors of gigabytes
/// take no memory beyond it. Values therefore repeat after some million elements. Movable; const
/// functions may be called from any thread.
class DummyWeights {
 public:
  /// f32, or bf16 for any other `dtype`. Errors: io if the memory cannot be mapped.
  static Result<DummyWeights> create(DType dtype);

  DummyWeights(DummyWeights&& other) noexcept;
  DummyWeights& operator=(DummyWeights&& other) noexcept;
  ~DummyWeights();

  /// A read-only view that lives as long as this object. Errors: unsupported for a tensor of more
  /// than 16 GiB.
  Result<Tensor> tensor(std::string_view name, const Shape& shape) const;

 private:
  DummyWeights() = default;

  DType dtype_ = DType::bf16;
  std::byte* noise_ = nullptr;  ///< the pattern, mapped repeatedly
  HostTensor ones_;
};

}  // namespace troupe
