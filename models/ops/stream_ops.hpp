#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/base/result.hpp"

namespace troupe {

/// Captured operations: made by StreamOps::capture, used by replay of the same.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
};

/// The order of what was enqueued on a device: waiting for it, and recording it to be replayed.
class StreamOps {
 public:
  virtual ~StreamOps() = default;

  /// A point in the order of what was enqueued.
  using DeviceEvent = std::uint64_t;
  /// The point after all work enqueued so far. Only the latest dozens are kept: for an older one,
  /// wait() waits for a later point.
  virtual DeviceEvent record_event() = 0;

  /// Returns when all work enqueued before `event` is done, whatever was enqueued later.
  virtual Result<void> wait(DeviceEvent event) = 0;

  /// True if wait(event) would return at once.
  virtual bool query(DeviceEvent event) = 0;

  /// Returns when everything enqueued so far is done.
  virtual Result<void> synchronize() = 0;

  /// Captures the operations that `enqueue` enqueues, without running them. Whenever it is replayed
  /// they are the same operations on the same memory; it must not upload, download or synchronize.
  /// Errors: those of `enqueue`; unsupported if supports_graph is false; resource_exhausted.
  virtual Result<std::unique_ptr<CapturedGraph>> capture(
      const std::function<Result<void>()>& enqueue) = 0;

  /// Enqueues the operations of `graph` again.
  virtual void replay(const CapturedGraph& graph) = 0;
};

}  // namespace troupe
