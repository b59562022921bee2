#include "models/ops/cuda/stream_marks.hpp"

namespace troupe {

cudaError_t StreamMarks::make(cudaStream_t stream, std::uint64_t& mark) {
  Event& event = events_[made_ % remembered];
  if (event == nullptr) {
    cudaEvent_t created = nullptr;
    const cudaError_t error = cudaEventCreateWithFlags(&created, cudaEventDisableTiming);
    if (error != cudaSuccess) return error;
    event.reset(created);
  }
  mark = made_++;
  return cudaEventRecord(event.get(), stream);
}

Result<cudaError_t> StreamMarks::wait(std::uint64_t mark, StreamWatch& watch) {
  const Event& event = events_[mark % remembered];
  if (event == nullptr) return cudaSuccess;
  return watch.wait(event.get());
}

bool StreamMarks::query(std::uint64_t mark, StreamWatch& watch) const {
  const Event& event = events_[mark % remembered];
  return event == nullptr || watch.would_end(event.get());
}

}  // namespace troupe
