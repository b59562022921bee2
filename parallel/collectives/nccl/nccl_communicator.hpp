#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "parallel/collectives/nccl/nccl_api.hpp"

namespace troupe {

/// A rank's membership in an NCCL group, which can be ended at any time. One thread at a time,
/// except end().
///
/// NCCL's non-blocking calls start a thread each, some 100 us; so this uses the blocking ones and
/// joins the ranks in a thread that can be left behind. Connecting ranks on their first call blocks
/// too: connect them (Collectives::barrier) once all are known to be there. Calls after that only
/// enqueue.
class NcclCommunicator {
 public:
  /// Begins to join the ranks that have the same id, on `device`, without waiting for them: the
  /// first run() does.
  NcclCommunicator(const NcclApi& api, const ncclUniqueId& id, int rank, int size, int device);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  using Body = std::function<ncclResult_t(const NcclApi&, ncclComm_t)>;
  /// Runs `body`, which enqueues; the first time waits until the ranks have joined. Errors:
  /// cancelled after end(), timeout, internal with NCCL's message.
  Result<void> run(const Body& body, std::chrono::milliseconds timeout);

  /// Ends running kernels at once; every run() then returns cancelled. Callable from any thread.
  void end();

 private:
  struct State;

  const NcclApi& api_;
  std::shared_ptr<State> state_;  ///< shared with the thread that joins
  std::thread aborter_;  ///< NCCL's abort waits for kernels and for graphs that hold the group
};

}  // namespace troupe
