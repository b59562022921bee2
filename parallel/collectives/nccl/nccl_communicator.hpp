#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "parallel/collectives/nccl/nccl_api.hpp"

namespace troupe {

/// A rank's place in a group of NCCL, which can be ended at any time. One thread at a time, except
/// end().
class NcclCommunicator {
 public:
  /// Begins to join the ranks that have the same id; the thread's device is the rank's. It does not
  /// wait for them: the first run() does. Errors: internal, with what NCCL says.
  static Result<std::unique_ptr<NcclCommunicator>> begin(const NcclApi& api, const ncclUniqueId& id,
                                                         int rank, int size);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  using Body = std::function<ncclResult_t(const NcclApi&, ncclComm_t)>;
  /// Lets `body` enqueue, and waits until NCCL has done so: where it connects ranks first, until
  /// they come. Errors: cancelled after end(), timeout, internal with what NCCL says.
  Result<void> run(const Body& body, std::chrono::milliseconds timeout);

  /// From any thread, at once: kernels that run end, and every run() returns cancelled.
  void end();

 private:
  explicit NcclCommunicator(const NcclApi& api) : api_(api) {}
  Result<void> settle(ncclResult_t status, std::chrono::steady_clock::time_point limit);

  const NcclApi& api_;
  std::mutex mutex_;  ///< of comm_
  ncclComm_t comm_ = nullptr;
  std::atomic<bool> ending_ = false;
  std::mutex end_mutex_;  ///< of aborter_
  std::thread aborter_;   ///< NCCL's abort waits for kernels and for graphs that hold the group
};

}  // namespace troupe
