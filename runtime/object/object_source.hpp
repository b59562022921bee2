#pragma once

#include "runtime/base/result.hpp"

namespace troupe {

/// Computes an object that is not there yet (ObjectStore::make_pending). Callable from any thread;
/// nothing here may block.
class ObjectSource {
 public:
  virtual ~ObjectSource() = default;
  /// All copies of the object are lost, as `why` says (object_lost): has it computed again, or
  /// gives it up by ObjectStore::fulfil with an error.
  virtual void recompute(const Error& why) = 0;
  /// Nobody needs the object any more, if it is not there yet.
  virtual void cancel() = 0;
};

}  // namespace troupe
