#include "parallel/device/cuda/stream_watch.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

/// Polls between two checks of the clock and the other ranks, each a read of shared memory.
constexpr int polls_at_once = 32;
/// Kernels told to end do so at their next poll, within microseconds.
constexpr auto ending_limit = std::chrono::seconds(1);
/// Work that takes this long is polled at intervals, so that a core is free.
constexpr auto busy_limit = std::chrono::milliseconds(200);
constexpr auto interval = std::chrono::microseconds(200);

}  // namespace

void StreamWatch::remove(const AwaitedRanks& ranks) {
  std::erase(groups_, &ranks);
  if (groups_.empty()) deadline_.reset();
}

bool StreamWatch::given_up() const {
  return std::ranges::any_of(groups_, [](const AwaitedRanks* group) { return group->given_up(); });
}

std::chrono::milliseconds StreamWatch::patience() const {
  std::chrono::milliseconds longest{0};
  for (const AwaitedRanks* group : groups_) longest = std::max(longest, group->patience());
  return longest;
}

std::string StreamWatch::describe() const {
  std::string text;
  for (const AwaitedRanks* group : groups_) {
    if (!text.empty()) text += "; ";
    text += group->describe();
  }
  return text;
}

void StreamWatch::end(const std::function<cudaError_t()>& query) {
  for (AwaitedRanks* group : groups_) group->end();
  const auto limit = Clock::now() + ending_limit;
  while (query() == cudaErrorNotReady && Clock::now() < limit)
    std::this_thread::sleep_for(interval);
}

Result<cudaError_t> StreamWatch::poll(const std::function<cudaError_t()>& query) {
  Deadline deadline = std::exchange(deadline_, std::nullopt).value_or(Deadline(patience()));
  const auto begin = Clock::now();
  for (int polls = 1;; ++polls) {
    const cudaError_t status = query();
    if (status == cudaErrorNotReady && polls % polls_at_once != 0) continue;
    // Checked even if the work is done: giving up may be what ended it.
    if (given_up()) {
      end(query);
      return fail(ErrorCode::cancelled, "collectives: the group was aborted: {}", describe());
    }
    if (status != cudaErrorNotReady) return status;
    const auto now = Clock::now();
    if (deadline.is_over(now)) {
      end(query);
      return fail(ErrorCode::timed_out,
                  "collectives: work on the GPU is not done after {} ms: other ranks did not come: "
                  "{}",
                  patience().count(), describe());
    }
    if (now - begin > busy_limit) std::this_thread::sleep_for(interval);
  }
}

Result<cudaError_t> StreamWatch::wait(cudaStream_t stream) {
  if (groups_.empty()) return cudaStreamSynchronize(stream);
  return poll([stream] { return cudaStreamQuery(stream); });
}

Result<cudaError_t> StreamWatch::wait(cudaEvent_t event) {
  if (groups_.empty()) return cudaEventSynchronize(event);
  return poll([event] { return cudaEventQuery(event); });
}

bool StreamWatch::would_end(cudaEvent_t event) {
  const bool done = cudaEventQuery(event) != cudaErrorNotReady;
  if (done || groups_.empty()) {
    deadline_.reset();
    return done;
  }
  if (!deadline_) deadline_ = Deadline(patience());
  return given_up() || deadline_->is_over();
}

}  // namespace troupe
