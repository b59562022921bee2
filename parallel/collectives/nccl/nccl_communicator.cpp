#include "parallel/collectives/nccl/nccl_communicator.hpp"

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include "runtime/base/deadline.hpp"

namespace troupe {
namespace {

/// Calls only enqueue, once ranks are connected.
constexpr auto call_limit = std::chrono::milliseconds(500);

}  // namespace

struct NcclCommunicator::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool joined = false;
  bool ending = false;
  ncclResult_t status = ncclSuccess;  ///< of joining
  std::string problem;                ///< NCCL's message about it
  ncclComm_t comm = nullptr;
  std::timed_mutex calls;  ///< held while NCCL is called with comm
};

NcclCommunicator::NcclCommunicator(const NcclApi& api, const ncclUniqueId& id, int rank, int size,
                                   int device)
    : api_(api), state_(std::make_shared<State>()) {
  std::thread([state = state_, &api, id, rank, size, device] {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = nullptr;
    ncclResult_t status = ncclUnhandledCudaError;
    if (cudaSetDevice(device) == cudaSuccess) {
      status = api.init_rank(&comm, size, id, rank, &config);
    }
    const std::string problem = status == ncclSuccess ? "" : api.last_error(nullptr);
    const std::lock_guard lock(state->mutex);
    state->joined = true;
    state->status = status;
    state->problem = problem;
    if (state->ending && comm != nullptr) {
      (void)api.abort(comm);
    } else {
      state->comm = comm;
    }
    state->changed.notify_all();
  }).detach();
}

NcclCommunicator::~NcclCommunicator() {
  end();
  if (aborter_.joinable()) aborter_.join();
}

void NcclCommunicator::end() {
  const std::lock_guard lock(state_->mutex);
  if (state_->ending) return;
  state_->ending = true;
  state_->changed.notify_all();
  const ncclComm_t comm = std::exchange(state_->comm, nullptr);
  if (comm == nullptr) return;
  aborter_ = std::thread([&api = api_, comm, state = state_] {
    // Only the abort ends a call that is stuck.
    const std::unique_lock calls(state->calls, call_limit);
    (void)api.abort(comm);
  });
}

Result<void> NcclCommunicator::run(const Body& body, std::chrono::milliseconds timeout) {
  const std::lock_guard calls(state_->calls);
  ncclComm_t comm = nullptr;
  {
    std::unique_lock lock(state_->mutex);
    if (!state_->joined && !state_->ending && !wait_for(state_->changed, lock, timeout, [&] {
          return state_->joined || state_->ending;
        })) {
      return fail(ErrorCode::timed_out, "other ranks did not come to join the group");
    }
    if (state_->ending) return fail(ErrorCode::cancelled, "the group was aborted");
    if (state_->status != ncclSuccess) {
      return fail(ErrorCode::internal, "NCCL cannot make a group: {} ({})",
                  api_.error_string(state_->status), state_->problem);
    }
    comm = state_->comm;
  }
  const ncclResult_t status = body(api_, comm);
  if (status == ncclSuccess) return {};
  return fail(ErrorCode::internal, "NCCL: {} ({})", api_.error_string(status),
              api_.last_error(comm));
}

}  // namespace troupe
