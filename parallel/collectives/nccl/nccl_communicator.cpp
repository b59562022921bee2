#include "parallel/collectives/nccl/nccl_communicator.hpp"

namespace troupe {
namespace {

constexpr auto poll_interval = std::chrono::microseconds(50);

}  // namespace

Result<std::unique_ptr<NcclCommunicator>> NcclCommunicator::begin(const NcclApi& api,
                                                                  const ncclUniqueId& id, int rank,
                                                                  int size) {
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(api));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t status = api.init_rank(&made->comm_, size, id, rank, &config);
  if (status != ncclSuccess && status != ncclInProgress) {
    return fail(ErrorCode::internal, "NCCL cannot make a group of {} ranks: {} ({})", size,
                api.error_string(status), api.last_error(nullptr));
  }
  return made;
}

NcclCommunicator::~NcclCommunicator() {
  end();
  const std::lock_guard lock(end_mutex_);
  if (aborter_.joinable()) aborter_.join();
}

void NcclCommunicator::end() {
  const std::lock_guard lock(end_mutex_);
  if (ending_.exchange(true)) return;
  aborter_ = std::thread([this] {
    const std::lock_guard comm_lock(mutex_);
    if (comm_ != nullptr) (void)api_.abort(comm_);
    comm_ = nullptr;
  });
}

Result<void> NcclCommunicator::run(const Body& body, std::chrono::milliseconds timeout) {
  const auto limit = std::chrono::steady_clock::now() + timeout;
  const std::lock_guard lock(mutex_);
  if (ending_ || comm_ == nullptr) {
    return fail(ErrorCode::cancelled, "the group was aborted");
  }
  ncclResult_t status = ncclSuccess;
  if (api_.get_async_error(comm_, &status) != ncclSuccess) status = ncclInternalError;
  TROUPE_CHECK(settle(status, limit));
  return settle(body(api_, comm_), limit);
}

// With the mutex held. What is in progress is NCCL's connecting of ranks; work on the GPU is not.
Result<void> NcclCommunicator::settle(ncclResult_t status,
                                      std::chrono::steady_clock::time_point limit) {
  while (status == ncclInProgress) {
    if (ending_) return fail(ErrorCode::cancelled, "the group was aborted");
    if (std::chrono::steady_clock::now() > limit) {
      return fail(ErrorCode::timeout, "other ranks did not come to join the group");
    }
    std::this_thread::sleep_for(poll_interval);
    if (api_.get_async_error(comm_, &status) != ncclSuccess) status = ncclInternalError;
  }
  if (status == ncclSuccess) return {};
  return fail(ErrorCode::internal, "NCCL: {} ({})", api_.error_string(status),
              api_.last_error(comm_));
}

}  // namespace troupe
