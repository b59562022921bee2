#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "parallel/collectives/nccl/nccl_api.hpp"

namespace troupe {

/// A rank's place in a group of NCCL, which can be ended at any time. One thread at a time, except
/// end().
///
/// NCCL's own calls that do not block start a thread each, some 100 us; so these are its blocking
/// ones, with the joining of ranks in a thread that can be left behind. What connects ranks when
/// they first call each other blocks too: let them do so (Collectives::barrier) once they are all
/// known to be there. Calls after that only enqueue.
class NcclCommunicator {
 public:
  /// Begins to join the ranks that have the same id, on `device`. It does not wait for them: the
  /// first run() does.
  NcclCommunicator(const NcclApi& api, const ncclUniqueId& id, int rank, int size, int device);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  using Body = std::function<ncclResult_t(const NcclApi&, ncclComm_t)>;
  /// Lets `body` enqueue; the first time waits until the ranks have joined. Errors: cancelled after
  /// end(), timeout, internal with what NCCL says.
  Result<void> run(const Body& body, std::chrono::milliseconds timeout);

  /// From any thread, at once: kernels that run end, and every run() returns cancelled.
  void end();

 private:
  struct State;

  const NcclApi& api_;
  std::shared_ptr<State> state_;  ///< also of the thread that joins
  std::thread aborter_;  ///< NCCL's abort waits for kernels and for graphs that hold the group
};

}  // namespace troupe
