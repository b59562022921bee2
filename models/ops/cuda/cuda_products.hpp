#pragma once

#include <map>
#include <memory>
#include <tuple>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "models/ops/ops.hpp"

namespace troupe {

/// Dense products by cuBLASLt, with one advised algorithm for each shape, which is looked up once.
/// One thread at a time.
class CudaProducts {
 public:
  /// `workspace` is device memory that products on one stream may use. Errors: internal.
  static Result<std::unique_ptr<CudaProducts>> create(DeviceTensor workspace);
  ~CudaProducts();
  CudaProducts(const CudaProducts&) = delete;
  CudaProducts& operator=(const CudaProducts&) = delete;

  /// Enqueues out = x . weight^T: weight [n, k] and x [rows, k] of one dtype, f32 or bf16, out
  /// [rows, n] f32 or bf16; rows >= 1. Errors: internal.
  Result<void> multiply(const Tensor& weight, const Tensor& x, const Tensor& out,
                        cudaStream_t stream);

 private:
  struct Product;
  /// Out and in features, rows, dtypes of the input and the output.
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, DType, DType>;

  explicit CudaProducts(DeviceTensor workspace);
  const Product* find(const Key& key);

  cublasLtHandle_t handle_ = nullptr;
  DeviceTensor workspace_;
  std::map<Key, std::unique_ptr<Product>> products_;
};

}  // namespace troupe
