#include "models/ops/cuda/cuda_stream_ops.hpp"

namespace troupe {
namespace {

struct CudaGraph final : CapturedGraph {
  cudaGraphExec_t graph = nullptr;

  ~CudaGraph() override {
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  }
};

}  // namespace

bool CudaStreamOps::query(DeviceEvent event) { return marks_.query(event, *context_.watch()); }

StreamOps::DeviceEvent CudaStreamOps::record_event() {
  DeviceEvent event = 0;
  check(marks_.make(stream(), event), "cudaEventRecord");
  return event;
}

Result<void> CudaStreamOps::wait(DeviceEvent event) {
  (void)stream();
  TROUPE_TRY(const cudaError_t status, marks_.wait(event, *context_.watch()));
  check(status, "an operation enqueued before");
  return context_.status();
}

Result<void> CudaStreamOps::synchronize() { return context_.synchronize(); }

Result<std::unique_ptr<CapturedGraph>> CudaStreamOps::capture(
    const std::function<Result<void>()>& enqueue) {
  TROUPE_CHECK(context_.status());
  // Relaxed: what a first launch allocates for itself is no part of the stream.
  check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  TROUPE_CHECK(context_.status());
  const Result<void> enqueued = enqueue();
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream(), &graph), "cudaStreamEndCapture");
  auto captured = std::make_unique<CudaGraph>();
  if (enqueued.ok() && context_.status().ok()) {
    check(cudaGraphInstantiate(&captured->graph, graph, 0), "cudaGraphInstantiate");
  }
  if (graph != nullptr) cudaGraphDestroy(graph);
  TROUPE_CHECK(enqueued);
  TROUPE_CHECK(context_.status());
  return std::unique_ptr<CapturedGraph>(std::move(captured));
}

void CudaStreamOps::replay(const CapturedGraph& captured) {
  check(cudaGraphLaunch(static_cast<const CudaGraph&>(captured).graph, stream()),
        "cudaGraphLaunch");
}

}  // namespace troupe
