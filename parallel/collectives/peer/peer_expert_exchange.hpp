#pragma once

#include <functional>
#include <memory>

#include "parallel/collectives/peer/peer_memory.hpp"
#include "parallel/collectives/peer/peer_rows.hpp"

namespace troupe {

/// DeviceExpertExchange between GPUs that reach each other's memory.
class PeerExpertExchange final : public DeviceExpertExchange {
 public:
  /// Called before each call; an error refuses it.
  using Begin = std::function<Result<void>(std::size_t bytes)>;

  /// Called by all ranks of `host`. Null on all if some GPU cannot access another's memory. `end`
  /// is mapped host memory: a value other than 0 ends all waits. Errors: those of PeerMemory::open.
  static Result<std::unique_ptr<PeerExpertExchange>> open(int device, cudaStream_t stream,
                                                          const volatile std::uint32_t* end,
                                                          Collectives& host,
                                                          const DeviceExpertExchangeLayout& layout,
                                                          Begin begin);

  Result<void> dispatch(const Tensor& x, const Tensor& scales, const Tensor& ids,
                        const Tensor& weights) override;
  Result<void> combine(const Tensor& results, const Tensor& out) override;

 private:
  PeerExpertExchange(const DeviceExpertExchangeLayout& layout, cudaStream_t stream, Begin begin)
      : DeviceExpertExchange(layout), stream_(stream), begin_(std::move(begin)) {}

  cudaStream_t stream_;
  Begin begin_;
  std::unique_ptr<PeerMemory> memory_;
  PeerRows rows_;
};

}  // namespace troupe
