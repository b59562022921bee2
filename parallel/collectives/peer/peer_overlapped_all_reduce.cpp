#include "parallel/collectives/peer/peer_overlapped_all_reduce.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include <cudaTypedefs.h>

#include "parallel/collectives/collective_checks.hpp"

namespace troupe {
namespace {

constexpr std::size_t mark_bytes = 4u << 10;
/// With fewer rows the parts' GEMMs are too small to be efficient.
constexpr std::int64_t min_rows_of_parts = std::int64_t{OverlappedAllReduce::parts} * 1024;
/// Above all counts in the order that waits compare in.
constexpr int released_byte = 0x3F;
constexpr auto end_time = std::chrono::seconds(3);
constexpr auto write_interval = std::chrono::milliseconds(5);

/// Stream operations on a word of memory; null if the driver has none.
struct MarkOperations {
  PFN_cuStreamWaitValue32_v11070 wait = nullptr;
  PFN_cuStreamWriteValue32_v11070 write = nullptr;

  bool are_there() const { return wait != nullptr && write != nullptr; }
};

template <class Function>
Function driver_function(const char* name) {
  constexpr unsigned version = 11070;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult there{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &there);
  if (error != cudaSuccess || there != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Function>(found);
}

const MarkOperations& mark_operations() {
  static const MarkOperations found{
      driver_function<PFN_cuStreamWaitValue32_v11070>("cuStreamWaitValue32"),
      driver_function<PFN_cuStreamWriteValue32_v11070>("cuStreamWriteValue32")};
  return found;
}

CUdeviceptr address(const std::byte* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

Result<void> enqueued(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  return fail(ErrorCode::internal, "{} of sums beside products: {}", what,
              cudaGetErrorString(error));
}

Result<void> enqueued(CUresult error, std::string_view what) {
  if (error == CUDA_SUCCESS) return {};
  return fail(ErrorCode::internal, "{} of sums beside products: driver error {}", what,
              static_cast<int>(error));
}

}  // namespace

Result<std::shared_ptr<PeerMarks>> PeerMarks::make(int device, std::byte* marks,
                                                   std::size_t bytes) {
  std::shared_ptr<PeerMarks> made(new PeerMarks(device, marks, bytes));
  TROUPE_CHECK(
      enqueued(cudaStreamCreateWithFlags(&made->stream_, cudaStreamNonBlocking), "a stream"));
  return made;
}

PeerMarks::~PeerMarks() {
  forget();
  if (writer_.joinable()) writer_.join();
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

bool PeerMarks::write() {
  const std::lock_guard lock(mutex_);
  if (marks_ == nullptr || cudaSetDevice(device_) != cudaSuccess) return false;
  return cudaMemsetAsync(marks_, released_byte, bytes_, stream_) == cudaSuccess;
}

void PeerMarks::release() {
  if (!write()) return;
  const std::lock_guard lock(mutex_);
  if (writer_.joinable()) return;
  // Other ranks may overwrite these with marks of theirs until they, too, have ended.
  writer_ = std::jthread([this] {
    const auto until = std::chrono::steady_clock::now() + end_time;
    while (std::chrono::steady_clock::now() < until && write()) {
      std::this_thread::sleep_for(write_interval);
    }
  });
}

void PeerMarks::forget() {
  const std::lock_guard lock(mutex_);
  marks_ = nullptr;
}

PeerOverlappedAllReduce::PeerOverlappedAllReduce(int device, cudaStream_t stream, int rank,
                                                 int ranks, std::int64_t width,
                                                 std::int64_t box_rows, Begin begin)
    : device_(device),
      stream_(stream),
      rank_(rank),
      ranks_(ranks),
      width_(width),
      box_rows_(box_rows),
      begin_(std::move(begin)) {
  min_rows_ = min_rows_of_parts;
}

Result<std::unique_ptr<PeerOverlappedAllReduce>> PeerOverlappedAllReduce::open(
    int device, cudaStream_t stream, Collectives& host, std::int64_t max_rows, std::int64_t width,
    Begin begin) {
  const int ranks = host.size();
  if (ranks < 2 || !takes_peer_norm(DType::bf16, width) || !mark_operations().are_there()) {
    return std::unique_ptr<PeerOverlappedAllReduce>();
  }
  // The last part takes the remaining rows, as whole rows of each rank.
  const std::int64_t box_rows = max_rows / (std::int64_t{parts} * ranks) + parts + 1;
  const std::size_t row = static_cast<std::size_t>(width) * 2;
  const std::size_t rows_bytes = static_cast<std::size_t>(max_rows) * row;
  const std::size_t boxes_bytes = static_cast<std::size_t>(box_rows * parts * ranks) * row;
  TROUPE_TRY(auto memory,
             PeerMemory::open(device, host, mark_bytes + boxes_bytes + rows_bytes, mark_bytes));
  if (memory == nullptr) return std::unique_ptr<PeerOverlappedAllReduce>();
  std::unique_ptr<PeerOverlappedAllReduce> made(new PeerOverlappedAllReduce(
      device, stream, host.rank(), ranks, width, box_rows, std::move(begin)));
  std::byte* const own = memory->regions().of[host.rank()];
  made->normed_ = Tensor(own + mark_bytes + boxes_bytes, DType::bf16, {max_rows, width});
  made->memory_ = std::move(memory);
  TROUPE_TRY(made->marks_, PeerMarks::make(device, own, mark_bytes));
  TROUPE_CHECK(made->create_streams());
  // Load it now: later, behind waits for marks, the loading could wait for them.
  TROUPE_CHECK(enqueued(load_norm_of_rows(ranks), "the loading of the kernel"));
  return made;
}

Result<void> PeerOverlappedAllReduce::create_streams() {
  int least = 0, greatest = 0;
  TROUPE_CHECK(enqueued(cudaDeviceGetStreamPriorityRange(&least, &greatest), "the priorities"));
  for (cudaStream_t* stream : {&partials_, &norms_, &normed_rows_}) {
    TROUPE_CHECK(enqueued(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, greatest),
                          "a stream"));
  }
  for (Part& part : parts_) {
    for (cudaEvent_t* event : {&part.computed, &part.normed}) {
      TROUPE_CHECK(enqueued(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "an event"));
    }
  }
  return {};
}

PeerOverlappedAllReduce::~PeerOverlappedAllReduce() {
  cudaSetDevice(device_);
  // If a group ends early, streams still wait for marks.
  const auto until = std::chrono::steady_clock::now() + end_time;
  const auto is_busy = [&] {
    bool busy = cudaStreamQuery(stream_) == cudaErrorNotReady;
    for (cudaStream_t stream : streams()) {
      busy = busy || (stream != nullptr && cudaStreamQuery(stream) == cudaErrorNotReady);
    }
    return busy;
  };
  while (is_busy() && std::chrono::steady_clock::now() < until) {
    if (marks_) marks_->release();
    std::this_thread::sleep_for(write_interval);
  }
  if (marks_) marks_->forget();
  for (cudaStream_t stream : streams()) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
  for (Part& part : parts_) {
    if (part.computed != nullptr) cudaEventDestroy(part.computed);
    if (part.normed != nullptr) cudaEventDestroy(part.normed);
  }
}

std::byte* PeerOverlappedAllReduce::mark(int of, int part, Message message, int from) const {
  const int index = (static_cast<int>(message) * parts + part) * max_peer_ranks + from;
  return memory_->regions().of[of] + static_cast<std::size_t>(index) * sizeof(std::uint32_t);
}

std::byte* PeerOverlappedAllReduce::box(int of, int part, int from) const {
  const std::int64_t rows = (std::int64_t{part} * ranks_ + from) * box_rows_;
  return memory_->regions().of[of] + mark_bytes + static_cast<std::size_t>(rows) * row_bytes();
}

Result<void> PeerOverlappedAllReduce::send(cudaStream_t stream, std::byte* place,
                                           const std::byte* from, std::size_t bytes,
                                           std::byte* mark, std::uint32_t count) const {
  if (bytes > 0) {
    TROUPE_CHECK(
        enqueued(cudaMemcpyAsync(place, from, bytes, cudaMemcpyDeviceToDevice, stream), "a copy"));
  }
  return enqueued(
      mark_operations().write(stream, address(mark), count, CU_STREAM_WRITE_VALUE_DEFAULT),
      "a mark");
}

Result<void> PeerOverlappedAllReduce::wait_for(cudaStream_t stream, int part, Message message,
                                               std::uint32_t count) const {
  for (int from = 0; from < ranks_; ++from) {
    if (from == rank_) continue;
    TROUPE_CHECK(enqueued(mark_operations().wait(stream, address(mark(rank_, part, message, from)),
                                                 count, CU_STREAM_WAIT_VALUE_GEQ),
                          "a wait"));
  }
  return {};
}

Result<void> PeerOverlappedAllReduce::begin(int part, const Tensor& partial) {
  TROUPE_CHECK(begin_(partial.bytes()));
  Part& own = at(part);
  ++own.begun;
  TROUPE_CHECK(enqueued(cudaEventRecord(own.computed, stream_), "an event"));
  TROUPE_CHECK(enqueued(cudaStreamWaitEvent(partials_, own.computed), "a wait"));
  const auto* const rows = static_cast<const std::byte*>(partial.data());
  for (int next = 1; next < ranks_; ++next) {
    const int to = (rank_ + next) % ranks_;
    const Slice share = ceil_slice(partial[0], {to, ranks_});
    TROUPE_CHECK(send(partials_, box(to, part, rank_),
                      rows + static_cast<std::size_t>(share.begin) * row_bytes(),
                      static_cast<std::size_t>(share.count) * row_bytes(),
                      mark(to, part, Message::partial, rank_), own.begun));
  }
  return {};
}

Result<void> PeerOverlappedAllReduce::norm(int part, const AllReduceRmsNorm& sum) {
  TROUPE_CHECK(check_all_reduce_rms_norm(sum, rank_, ranks_));
  TROUPE_CHECK(begin_(sum.normed.bytes()));
  Part& own = at(part);
  ++own.summed;
  const Slice share = ceil_slice(sum.partial[0], {rank_, ranks_});
  TROUPE_CHECK(enqueued(cudaStreamWaitEvent(norms_, own.computed), "a wait"));
  TROUPE_CHECK(wait_for(norms_, part, Message::partial, own.begun));
  RankRows rows;
  for (int from = 0; from < ranks_; ++from) rows.of[from] = box(rank_, part, from);
  const std::size_t offset = static_cast<std::size_t>(share.begin) * row_bytes();
  rows.of[rank_] = static_cast<const std::byte*>(sum.partial.data()) + offset;
  auto* const normed = static_cast<std::byte*>(sum.normed.data()) + offset;
  TROUPE_CHECK(enqueued(launch_norm_of_rows(rows, ranks_, sum, share, norms_), "a norm"));
  TROUPE_CHECK(enqueued(cudaEventRecord(own.normed, norms_), "an event"));
  TROUPE_CHECK(enqueued(cudaStreamWaitEvent(normed_rows_, own.normed), "a wait"));
  const auto place = normed - memory_->regions().of[rank_];
  for (int next = 1; next < ranks_; ++next) {
    const int to = (rank_ + next) % ranks_;
    TROUPE_CHECK(send(normed_rows_, memory_->regions().of[to] + place, normed,
                      static_cast<std::size_t>(share.count) * row_bytes(),
                      mark(to, part, Message::normed, rank_), own.summed));
  }
  return {};
}

Result<void> PeerOverlappedAllReduce::await(int part) {
  TROUPE_CHECK(begin_(0));
  const Part& own = at(part);
  TROUPE_CHECK(enqueued(cudaStreamWaitEvent(stream_, own.normed), "a wait"));
  return wait_for(stream_, part, Message::normed, own.summed);
}

}  // namespace troupe
