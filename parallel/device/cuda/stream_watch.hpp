#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "runtime/base/deadline.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Ranks that work on a stream waits for.
class AwaitedRanks {
 public:
  virtual ~AwaitedRanks() = default;

  /// True if any of them has given up. Callable from any thread.
  virtual bool given_up() const = 0;
  /// Gives up: ends all work of the group on this rank's stream, now and later, whose results are
  /// void, and notifies the others. Callable from any thread; does not wait for the stream.
  virtual void end() = 0;
  virtual std::chrono::milliseconds patience() const = 0;
  /// "rank 1 of 2 (tensor), last an all-reduce of 8192 bytes".
  virtual std::string describe() const = 0;
};

/// Waits for a stream whose work ends only if other ranks come. One thread at a time.
class StreamWatch {
 public:
  void add(AwaitedRanks& ranks) { groups_.push_back(&ranks); }
  void remove(const AwaitedRanks& ranks);

  /// Returns when all work so far is done; the GPU's own error if that ended it. Errors: cancelled
  /// if a rank of any group has given up, and timeout if the work is not done within the groups'
  /// longest timeout because other ranks did not come. After both, all groups are ended.
  Result<cudaError_t> wait(cudaStream_t stream);
  /// The same for the work enqueued before an event.
  Result<cudaError_t> wait(cudaEvent_t event);
  /// True if a wait for the event would end at once, even with an error.
  bool would_end(cudaEvent_t event);

 private:
  Result<cudaError_t> poll(const std::function<cudaError_t()>& query);
  bool given_up() const;
  std::chrono::milliseconds patience() const;
  /// Ends all groups and waits a moment for the work to stop.
  void end(const std::function<cudaError_t()>& query);
  std::string describe() const;

  std::vector<AwaitedRanks*> groups_;
  /// The deadline of the wait that is not done.
  std::optional<Deadline> deadline_;
};

}  // namespace troupe
