#include "models/ops/cuda/cuda_products.hpp"

#include <utility>

namespace troupe {
namespace {

cudaDataType_t cuda_type(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

}  // namespace

/// A product's descriptors and the algorithm that cuBLASLt advises. Its matrices are column-major,
/// so out [rows, n] = x . weight^T is out^T [n, rows] = weight [n, k] . x^T.
struct CudaProducts::Product {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  Product() = default;
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
    for (cublasLtMatrixLayout_t layout : {weight, x, out}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
  }
};

CudaProducts::CudaProducts(DeviceTensor workspace) : workspace_(std::move(workspace)) {}

Result<std::unique_ptr<CudaProducts>> CudaProducts::create(DeviceTensor workspace) {
  std::unique_ptr<CudaProducts> products(new CudaProducts(std::move(workspace)));
  if (const cublasStatus_t status = cublasLtCreate(&products->handle_);
      status != CUBLAS_STATUS_SUCCESS) {
    return fail(ErrorCode::internal, "cuBLASLt cannot be started: {}",
                cublasLtGetStatusString(status));
  }
  return products;
}

CudaProducts::~CudaProducts() {
  products_.clear();
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

const CudaProducts::Product* CudaProducts::find(const Key& key) {
  if (const auto found = products_.find(key); found != products_.end()) return found->second.get();
  const auto [n, k, rows, in, out] = key;
  auto product = std::make_unique<Product>();
  cublasLtMatmulDescCreate(&product->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  cublasLtMatmulDescSetAttribute(product->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                 sizeof transposed);
  cublasLtMatrixLayoutCreate(&product->weight, cuda_type(in), k, n, k);
  cublasLtMatrixLayoutCreate(&product->x, cuda_type(in), k, rows, k);
  cublasLtMatrixLayoutCreate(&product->out, cuda_type(out), n, rows, n);
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulPreferenceCreate(&preference);
  // Partial sums of a k that is split are added in fp32.
  const std::uint32_t reductions =
      CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                       &reductions, sizeof reductions);
  const std::size_t room = workspace_->bytes();
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
                                       sizeof room);
  cublasLtMatmulHeuristicResult_t advice{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, product->operation, product->weight, product->x,
                                     product->out, product->out, preference, 1, &advice, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) return nullptr;
  product->algorithm = advice.algo;
  return products_.emplace(key, std::move(product)).first->second.get();
}

Result<void> CudaProducts::multiply(const Tensor& weight, const Tensor& x, const Tensor& out,
                                    cudaStream_t stream) {
  const Product* product = find({weight[0], weight[1], x[0], x.dtype(), out.dtype()});
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (product != nullptr) {
    const float one = 1.0F, zero = 0.0F;
    status =
        cublasLtMatmul(handle_, product->operation, &one, weight.data(), product->weight, x.data(),
                       product->x, &zero, out.data(), product->out, out.data(), product->out,
                       &product->algorithm, workspace_->data(), workspace_->bytes(), stream);
  }
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return fail(ErrorCode::internal, "the product of {} {} and {} into {} failed: {}",
              x.shape().to_string(), to_string(x.dtype()), weight.shape().to_string(),
              to_string(out.dtype()), cublasLtGetStatusString(status));
}

}  // namespace troupe
