#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <cuda_runtime.h>

#include "parallel/collectives/collective_call.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/device_group.hpp"
#include "parallel/collectives/nccl/nccl_communicator.hpp"
#include "parallel/collectives/peer/peer_memory.hpp"
#include "parallel/collectives/peer/peer_overlapped_all_reduce.hpp"
#include "parallel/device/cuda/stream_watch.hpp"

namespace troupe {

/// The device and stream that a rank's collectives are enqueued on.
struct NcclSeat {
  int device = 0;  ///< of this process, as CUDA counts
  cudaStream_t stream = nullptr;
  std::shared_ptr<StreamWatch> watch;  ///< of the stream; every wait for the stream uses it
  DeviceGroup group;
};

/// Collectives between GPUs, for tensors in their memory: every call but barrier() enqueues on the
/// rank's stream. Tensors must be valid until the stream has finished with them; the watch's next
/// wait reports errors.
///
/// Our own kernels add sums, through memory that the GPUs share (PeerMemory), or, for groups that
/// share none (over several nodes, of more than max_peer_ranks, or of GPUs that cannot) and in
/// reduce_scatter_tree, from what NCCL has brought: the same order, so the same bytes. Small
/// gathers and columns_to_rows go through shared memory too. NCCL does the rest. Partial sums may
/// be bf16; then the sum is f32, or bf16, rounded once.
///
/// The group has a second one in host memory, which outlives it, reports aborts to the ranks and
/// brings them together at first. Ranks that disagree about a call are not detected: the watch
/// times out. send() waits on the stream for the receiver, unless the message is small.
///
/// After every pair of ranks has connected (barrier()), calls can be captured in graphs.
class NcclCollectives final : public Collectives, private AwaitedRanks {
 public:
  /// Called by all ranks of `host`. Does not wait for NCCL to connect them: barrier() does. Errors:
  /// those of Collectives; unsupported without NCCL; resource_exhausted; invalid_argument for more
  /// than max_summed_ranks ranks.
  static Result<std::unique_ptr<NcclCollectives>> join(NcclSeat seat, Collectives& host);
  ~NcclCollectives() override;

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  using Collectives::all_reduce_tree;
  Result<void> all_reduce_tree(const Tensor& partial, const Tensor& sum) override;
  Result<void> reduce_scatter_tree(const Tensor& partial, const Tensor& sum,
                                   std::span<const std::int64_t> rows_per_rank) override;
  Result<void> all_gather(const Tensor& part, const Tensor& all,
                          std::span<const std::int64_t> rows_per_rank) override;
  Result<void> broadcast(const Tensor& tensor, int root) override;
  Result<void> all_to_all(const Tensor& send, std::span<const std::int64_t> send_rows,
                          const Tensor& receive,
                          std::span<const std::int64_t> receive_rows) override;
  bool can_all_reduce_rms_norm(DType dtype, std::int64_t width) const override;
  bool prefers_sharded_residual(std::size_t bytes) const override;
  Result<void> all_reduce_rms_norm(const AllReduceRmsNorm& sum) override;
  Result<void> columns_to_rows(const Tensor& part, const Tensor& whole,
                               const Tensor& scratch) override;
  Result<std::unique_ptr<DeviceExpertExchange>> open_expert_exchange(
      const DeviceExpertExchangeLayout& layout) override;
  Result<std::unique_ptr<OverlappedAllReduce>> open_overlapped_all_reduce(
      DType dtype, std::int64_t max_rows, std::int64_t width) override;
  Result<void> library_all_reduce(const Tensor& partial, const Tensor& sum) override;
  Result<void> send(const Tensor& tensor, int to) override;
  Result<void> receive(const Tensor& tensor, int from) override;
  /// Waits for the stream, too.
  Result<void> barrier() override;
  void abort() override;
  bool aborted() const override { return given_up(); }
  Tensor staging(DType dtype, const Shape& shape) override { return {nullptr, dtype, shape}; }

  /// True if sums go through memory that the GPUs share.
  bool shares_memory() const { return peers_ != nullptr; }

 private:
  NcclCollectives(NcclSeat seat, Collectives& host) : seat_(std::move(seat)), host_(host) {}
  Result<void> allocate();

  bool given_up() const override { return ended_ || host_.aborted(); }
  void end() override { abort(); }
  std::chrono::milliseconds patience() const override { return timeout(); }
  std::string describe() const override;

  /// Ends this rank's work on the stream.
  void stop();
  /// Begins a call; `checked` is the result of checking its arguments.
  Result<void> begin(Result<void> checked, const CollectiveCall& call);
  Result<void> run(const NcclCommunicator::Body& body);
  Result<void> check(cudaError_t error, std::string_view what) const;
  Error failed(const Error& why) const;

  /// Sums elements [begin, begin + count) of every rank's `partial`, where count is this rank's
  /// entry of `counts` and begin the sum of the entries before it, into `sum` on this rank, in
  /// pieces.
  Result<void> sum_shares(const Tensor& partial, const Tensor& sum,
                          std::span<const std::int64_t> counts);
  Result<void> sum_everywhere(const Tensor& partial, const Tensor& sum);
  Result<void> gather_by_nccl(const Tensor& part, const Tensor& all,
                              std::span<const std::size_t> bytes);
  PeerCall peer_call() const { return {peers_->regions(), rank(), size(), end_word_}; }

  NcclSeat seat_;
  Collectives& host_;
  std::unique_ptr<NcclCommunicator> nccl_;
  std::unique_ptr<PeerMemory> peers_;  ///< null if the GPUs cannot access each other's memory
  void* scratch_ = nullptr;            ///< device memory for the terms that other ranks send
  std::uint32_t* end_word_ = nullptr;  ///< mapped host memory that our kernels poll
  std::mutex side_mutex_;
  std::shared_ptr<PeerMarks> side_marks_;  ///< of the latest OverlappedAllReduce
  CollectiveCall last_;                    ///< the last call enqueued
  std::atomic<bool> ended_ = false;
};

}  // namespace troupe
