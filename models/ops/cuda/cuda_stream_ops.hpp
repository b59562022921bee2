#pragma once

#include "models/ops/cuda/cuda_context.hpp"
#include "models/ops/cuda/stream_marks.hpp"
#include "models/ops/stream_ops.hpp"

namespace troupe {

/// Events of CUDA, and graphs of it.
class CudaStreamOps final : public StreamOps, private CudaComponent {
 public:
  explicit CudaStreamOps(CudaContext& context) : CudaComponent(context) {}

  DeviceEvent record_event() override;
  Result<void> wait(DeviceEvent event) override;
  bool query(DeviceEvent event) override;
  Result<void> synchronize() override;
  Result<std::unique_ptr<CapturedGraph>> capture(
      const std::function<Result<void>()>& enqueue) override;
  void replay(const CapturedGraph& graph) override;

 private:
  StreamMarks marks_;
};

}  // namespace troupe
