#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include <cuda_runtime.h>

#include "parallel/device/cuda/stream_watch.hpp"

namespace troupe {

/// Points in a stream, numbered as they are made; StreamOps says more. The
/// latest are remembered, an event each: an older one's was recorded again since, behind it, so
/// that whoever waits for it waits for more than he asked. One thread at a time, of the device's.
class StreamMarks {
 public:
  cudaError_t make(cudaStream_t stream, std::uint64_t& mark);
  Result<cudaError_t> wait(std::uint64_t mark, StreamWatch& watch);
  bool query(std::uint64_t mark, StreamWatch& watch) const;

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy>;

  static constexpr std::size_t remembered = 64;
  std::array<Event, remembered> events_;
  std::uint64_t made_ = 0;
};

}  // namespace troupe
