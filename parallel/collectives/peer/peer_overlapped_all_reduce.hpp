#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include <cuda_runtime.h>

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/peer/peer_memory.hpp"
#include "parallel/collectives/peer/peer_sums.hpp"

namespace troupe {

/// Ends waits of streams for marks that other ranks write.
class PeerMarks {
 public:
  /// Errors: internal if CUDA has no stream.
  static Result<std::shared_ptr<PeerMarks>> make(int device, std::byte* marks, std::size_t bytes);
  ~PeerMarks();

  /// Ends all waits, also later ones, for some seconds from now. Callable from any thread.
  void release();
  /// Forgets the marks, whose memory is about to be freed.
  void forget();

 private:
  PeerMarks(int device, std::byte* marks, std::size_t bytes)
      : device_(device), marks_(marks), bytes_(bytes) {}
  /// Writes marks that end all waits. False if the memory is gone.
  bool write();

  std::mutex mutex_;
  int device_;
  cudaStream_t stream_ = nullptr;
  std::byte* marks_;
  std::size_t bytes_;
  std::jthread writer_;
};

/// OverlappedAllReduce of bf16 between GPUs that can access each other's memory: copy engines carry
/// the rows, so that GEMMs keep all multiprocessors. Each rank has a box for its rows of each part
/// from each rank, and a mark per message: a message count that the sender's stream writes after it
/// and the receiver's stream waits for. A kernel adds, in the order of tree_sum.hpp, and
/// normalises. Partial sums, these kernels and normalised rows have one stream each, shared by the
/// parts: with streams of their own all parts would share the one copy engine that serves peers,
/// and the first would arrive as late as the last.
///
/// Boxes and rows are never overwritten too early. A rank sends its partial sums of a part only
/// after its caller has awaited all normalised rows of that part's previous norm, so all ranks have
/// read their boxes. It sends normalised rows, or writes its own, only when it has all partial
/// sums, so all ranks have used the previous rows.
class PeerOverlappedAllReduce final : public OverlappedAllReduce {
 public:
  /// Announces a call of this many bytes before it is enqueued.
  using Begin = std::function<Result<void>(std::size_t bytes)>;

  /// Called by all ranks of `host`; `stream` is that of the other operations. Null on all ranks if
  /// GPUs cannot access each other's memory or the driver has no stream waits. Errors: those of
  /// PeerMemory::open.
  static Result<std::unique_ptr<PeerOverlappedAllReduce>> open(int device, cudaStream_t stream,
                                                               Collectives& host,
                                                               std::int64_t max_rows,
                                                               std::int64_t width, Begin begin);
  ~PeerOverlappedAllReduce() override;

  Result<void> begin(int part, const Tensor& partial) override;
  Result<void> norm(int part, const AllReduceRmsNorm& sum) override;
  Result<void> await(int part) override;

  const std::shared_ptr<PeerMarks>& marks() const { return marks_; }

 private:
  /// The message that a mark stands for: partial sums or normalised rows.
  enum class Message : std::uint8_t { partial, normed };

  struct Part {
    cudaEvent_t computed = nullptr;  ///< partial sums are computed
    cudaEvent_t normed = nullptr;    ///< this rank's rows are normalised
    std::uint32_t begun = 0, summed = 0;
  };

  PeerOverlappedAllReduce(int device, cudaStream_t stream, int rank, int ranks, std::int64_t width,
                          std::int64_t box_rows, Begin begin);
  Result<void> create_streams();
  std::array<cudaStream_t, 3> streams() const { return {partials_, norms_, normed_rows_}; }
  Part& at(int part) { return parts_[static_cast<std::size_t>(part)]; }
  std::byte* mark(int of, int part, Message message, int from) const;
  std::byte* box(int of, int part, int from) const;
  std::size_t row_bytes() const { return static_cast<std::size_t>(width_) * 2; }
  /// Copies to another rank's memory, then writes its mark.
  Result<void> send(cudaStream_t stream, std::byte* place, const std::byte* from, std::size_t bytes,
                    std::byte* mark, std::uint32_t count) const;
  Result<void> wait_for(cudaStream_t stream, int part, Message message, std::uint32_t count) const;

  int device_;
  cudaStream_t stream_;
  cudaStream_t partials_ = nullptr, norms_ = nullptr, normed_rows_ = nullptr;
  int rank_, ranks_;
  std::int64_t width_;
  std::int64_t box_rows_;
  Begin begin_;
  std::unique_ptr<PeerMemory> memory_;
  std::shared_ptr<PeerMarks> marks_;
  std::array<Part, parts> parts_;
};

}  // namespace troupe
