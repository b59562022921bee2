#include <algorithm>
#include <utility>
#include <vector>

#include "models/ops/attention_limits.hpp"
#include "models/ops/cuda/common/small_copy.hpp"
#include "models/ops/cuda/cuda_ops_impl.hpp"
#include "models/ops/cuda/device_code.hpp"
#include "models/ops/cuda/sampling/row_summary.hpp"

namespace troupe {
namespace {

constexpr std::int64_t workspace_bytes = 64 << 20;
constexpr std::int64_t segment_parts = 16 << 20;  // f32
constexpr std::int64_t max_sampled_rows = 65536;

struct CudaGraph final : CapturedGraph {
  cudaGraphExec_t graph = nullptr;

  ~CudaGraph() override {
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  }
};

}  // namespace

bool cuda_device_runs_this_build(int device) {
  // Queried by number: querying a kernel would initialise the device, which takes part of a second.
  int major = 0, minor = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
         code_runs_on(TROUPE_CUDA_CODE, major, minor);
}

Result<std::unique_ptr<Ops>> make_cuda_ops(const CudaOpsOptions& options) {
  return CudaOps::create(options);
}

Result<std::unique_ptr<Ops>> CudaOps::create(const CudaOpsOptions& options) {
  if (options.dtype != DType::f32 && options.dtype != DType::bf16) {
    return fail(ErrorCode::invalid_argument, "the GPU computes in f32 or bf16, not in {}",
                to_string(options.dtype));
  }
  if (options.deterministic && options.dtype != DType::bf16) {
    return fail(ErrorCode::unsupported, "deterministic products on GPUs are of bf16, not of {}",
                to_string(options.dtype));
  }
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices);
      error != cudaSuccess || options.device >= devices) {
    return fail(ErrorCode::not_found, "no CUDA device {}: {} devices are there ({})",
                options.device, devices, cudaGetErrorString(error));
  }
  if (!cuda_device_runs_this_build(options.device)) {
    return fail(
        ErrorCode::unsupported,
        "this build has no code for CUDA device {}: it was built for {}; build it again with "
        "that device's in TROUPE_CUDA_CODE",
        options.device, TROUPE_CUDA_CODE);
  }
  std::unique_ptr<CudaOps> ops(new CudaOps(options));
  (void)ops->stream();  // makes the device this thread's
  ops->check(cudaStreamCreateWithFlags(&ops->stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  if (ops->error_) return *ops->error_;
  TROUPE_CHECK(ops->make_parts(options));
  TROUPE_TRY(ops->sampled_rows_,
             ops->allocate(DType::u8, {max_sampled_rows * std::int64_t{sizeof(SampledRow)}}));
  TROUPE_TRY(ops->row_summaries_, ops->allocate(DType::u8, {sizeof(cuda::SummaryMemory)}));
  ops->check(cudaDeviceGetAttribute(&ops->multiprocessors_, cudaDevAttrMultiProcessorCount,
                                    options.device),
             "multiprocessors of the device");
  TROUPE_CHECK(ops->synchronize());
  return std::unique_ptr<Ops>(std::move(ops));
}

Result<void> CudaOps::make_parts(const CudaOpsOptions& options) {
  TROUPE_TRY(DeviceTensor workspace, allocate(DType::u8, {workspace_bytes}));
  if (options.deterministic) {
    TROUPE_TRY(DeviceTensor parts, allocate(DType::f32, {segment_parts}));
    TROUPE_TRY(invariant_gemm_, InvariantGemm::create({std::move(workspace), std::move(parts)},
                                                      options.autotunes_gemms));
    TROUPE_TRY(invariant_attention_, InvariantAttention::create());
    return {};
  }
  TROUPE_TRY(dense_gemm_, DenseGemm::create(std::move(workspace), options.autotunes_gemms));
  if (options.dtype == DType::bf16) {
    TROUPE_TRY(flash_attention_, FlashAttention::create());
    TROUPE_TRY(latent_attention_, FlashInferMla::create());
    TROUPE_TRY(decode_attention_, DecodeAttention::create());
  }
  return {};
}

CudaOps::~CudaOps() {
  upload_.reset();
  if (stream_ != nullptr) cudaStreamSynchronize(stream());
  dense_gemm_.reset();
  invariant_gemm_.reset();
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

cudaStream_t CudaOps::stream() {
  thread_local int current = -1;
  if (current != device_) {
    const cudaError_t error = cudaSetDevice(device_);
    check(error, "cudaSetDevice");
    current = error == cudaSuccess ? device_ : -1;
  }
  return stream_;
}

void CudaOps::check(cudaError_t error, std::string_view operation) {
  if (error == cudaSuccess || error_) return;
  error_ = fail(ErrorCode::internal, "device {}: {} failed: {} ({})", device_, operation,
                cudaGetErrorString(error), cudaGetErrorName(error));
}

std::optional<DeviceMemory> CudaOps::memory() {
  std::size_t free = 0, total = 0;
  (void)stream();
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  if (error_) return std::nullopt;
  return DeviceMemory{free, total};
}

void CudaOps::check(const Result<void>& done) {
  if (done.ok() || error_) return;
  error_ = fail(done.error().code, "device {}: {}", device_, done.error().message);
}

Result<DeviceTensor> CudaOps::allocate(DType dtype, const Shape& shape) {
  TROUPE_TRY(DeviceTensor memory, allocate_unset(dtype, shape));
  check(cudaMemsetAsync(memory->data(), 0, memory->bytes(), stream()), "cudaMemset");
  return memory;
}

Result<DeviceTensor> CudaOps::allocate_unset(DType dtype, const Shape& shape, std::int64_t behind) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements() + behind) * size_of(dtype);
  (void)stream();
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, std::max<std::size_t>(bytes, 1));
  if (error != cudaSuccess && error != cudaErrorMemoryAllocation) {
    check(error, "cudaMalloc");
    return *error_;
  }
  if (error != cudaSuccess) {
    std::size_t free = 0, total = 0;
    cudaGetLastError();  // the error is reported here, not by the next operation
    cudaMemGetInfo(&free, &total);
    return fail(
        ErrorCode::resource_exhausted,
        "device {}: no memory for {} bytes, a tensor {} of {}: {} of {} bytes are free ({})",
        device_, bytes, shape.to_string(), to_string(dtype), free, total,
        cudaGetErrorString(error));
  }
  return DeviceTensor(Tensor(memory, dtype, shape), [](void* of) { cudaFree(of); });
}

void CudaOps::upload(const Tensor& host, const Tensor& device) {
  if (host.empty()) return;
  check(copy_small(device.data(), host.data(), host.bytes(), cudaMemcpyHostToDevice, stream()),
        "upload");
}

void CudaOps::download(const Tensor& device, const Tensor& host) {
  if (host.empty()) return;
  check(copy_small(host.data(), device.data(), host.bytes(), cudaMemcpyDeviceToHost, stream()),
        "download");
}

Result<void> CudaOps::synchronize() {
  TROUPE_TRY(const cudaError_t status, watch_->wait(stream()));
  check(status, "an operation enqueued before");
  if (error_) return *error_;
  return {};
}

bool CudaOps::supports_graph(const AttentionShape& shape, DType stored) const {
  if (deterministic_) return InvariantAttention::supports(shape, stored, dtype_);
  if (flash_attention_ == nullptr) return false;
  return DecodeAttention::supports(shape, stored, dtype_) ||
         FlashInferMla::supports(shape, stored, dtype_) ||
         (FlashAttention::supports(shape, stored, dtype_) && FlashAttention::supports_graph(shape));
}

Result<std::unique_ptr<CapturedGraph>> CudaOps::capture(
    const std::function<Result<void>()>& enqueue) {
  if (error_) return *error_;
  // Relaxed mode: what a first launch allocates for itself is not part of the capture.
  check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  if (error_) return *error_;
  const Result<void> enqueued = enqueue();
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream(), &graph), "cudaStreamEndCapture");
  auto captured = std::make_unique<CudaGraph>();
  if (enqueued.ok() && !error_) {
    check(cudaGraphInstantiate(&captured->graph, graph, 0), "cudaGraphInstantiate");
  }
  if (graph != nullptr) cudaGraphDestroy(graph);
  TROUPE_CHECK(enqueued);
  if (error_) return *error_;
  return std::unique_ptr<CapturedGraph>(std::move(captured));
}

void CudaOps::replay(const CapturedGraph& captured) {
  check(cudaGraphLaunch(static_cast<const CudaGraph&>(captured).graph, stream()),
        "cudaGraphLaunch");
}

Result<std::pair<DeviceTensor, DeviceTensor>> CudaOps::allocate_kv(std::int64_t blocks,
                                                                   std::int32_t block_size,
                                                                   const AttentionShape& shape,
                                                                   DType dtype) {
  TROUPE_CHECK(check_gpu_attention(shape, dtype));
  const Shape pages{blocks, shape.kv_heads, block_size, shape.head_dim};
  const auto zeros = [&]() -> Result<DeviceTensor> {
    const std::int64_t behind = FlashAttention::elements_behind(shape);
    TROUPE_TRY(DeviceTensor memory, allocate_unset(dtype, pages, behind));
    const std::size_t bytes = memory->bytes() + static_cast<std::size_t>(behind) * size_of(dtype);
    check(cudaMemsetAsync(memory->data(), 0, bytes, stream()), "cudaMemset");
    return memory;
  };
  TROUPE_TRY(DeviceTensor keys, zeros());
  if (shape.latent != 0) return std::pair(std::move(keys), DeviceTensor());
  TROUPE_TRY(DeviceTensor values, zeros());
  return std::pair(std::move(keys), std::move(values));
}

void CudaOps::linear(const Linear& weight, const Tensor& x, const Tensor& out) {
  if (x[0] == 0) return;
  const auto& linear = static_cast<const CudaLinear&>(weight);
  if (deterministic_) {
    check(invariant_gemm_->multiply(linear.weight(), linear.segments(), x, out, stream()));
    return;
  }
  check(dense_gemm_->multiply(linear.weight(), x, out, stream()));
}

void CudaOps::linear_gate_up(const Linear& weight, const Tensor& x, const Tensor& scratch,
                             const Tensor& out) {
  if (x[0] == 0) return;
  const Tensor& matrix = static_cast<const CudaLinear&>(weight).weight();
  if (!deterministic_ && dense_gemm_->multiplies_gated(matrix, x)) {
    check(dense_gemm_->multiply_gated(matrix, x, out, stream()));
  } else {
    Ops::linear_gate_up(weight, x, scratch, out);
  }
}

}  // namespace troupe
