#pragma once

#include <functional>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "models/ops/cuda/cuda_collectives.hpp"
#include "models/ops/cuda/cuda_ops.hpp"
#include "parallel/collectives/shm/shm_collectives.hpp"
#include "runtime/memory/shared_memory.hpp"

namespace troupe {

inline int gpus() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

/// A rank of a group of threads with a GPU each.
struct GpuRank {
  std::unique_ptr<Collectives> host;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Collectives> device;

  Result<DeviceTensor> upload(const Tensor& values) const {
    TROUPE_TRY(DeviceTensor made, ops->memory().allocate(values.dtype(), values.shape()));
    ops->memory().upload(values, made);
    TROUPE_CHECK(ops->stream().synchronize());
    return made;
  }
  Result<HostTensor> download(const Tensor& values) const {
    HostTensor host_values(values.dtype(), values.shape());
    ops->memory().download(values, host_values);
    TROUPE_CHECK(ops->stream().synchronize());
    return host_values;
  }
};

/// Runs `body` on each of `size` ranks; a rank that fails aborts the group.
inline void run_gpu_ranks(int size, const std::function<Result<void>(GpuRank&)>& body,
                          const DeviceGroup& group = {"test"}) {
  auto region = SharedMemory::create(shm_collectives_bytes(size));
  ASSERT_TRUE(region.ok()) << region.error().message;
  std::latch all_done(size);
  const auto run = [&](int rank) -> Result<void> {
    GpuRank own;
    TROUPE_TRY(UniqueFd fd, region->duplicate_fd());
    TROUPE_TRY(SharedMemory mapped, SharedMemory::map(std::move(fd)));
    TROUPE_TRY(own.host, ShmCollectives::attach(std::move(mapped), rank, size));
    const auto go = [&]() -> Result<void> {
      TROUPE_TRY(own.ops, make_cuda_ops({.device = rank, .dtype = DType::f32}));
      TROUPE_TRY(own.device, join_cuda_ranks(*own.ops, *own.host, group));
      TROUPE_CHECK(own.device->barrier());
      return body(own);
    };
    Result<void> done = go();
    if (!done.ok()) own.host->abort();
    all_done.arrive_and_wait();  // no memory is freed while another rank still reads or writes it
    return done;
  };
  std::vector<Result<void>> results(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] { results[static_cast<std::size_t>(rank)] = run(rank); });
    }
  }
  for (int rank = 0; rank < size; ++rank) {
    const auto& result = results[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(result.ok()) << "rank " << rank << ": " << result.error().message;
  }
}

}  // namespace troupe
