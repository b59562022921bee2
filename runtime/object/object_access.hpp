#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/object/object_store.hpp"

namespace troupe {

/// Objects, for the driver (Cluster) and for actors (ActorContext). Callable from any thread.
class ObjectAccess {
 public:
  /// Puts an object: a copy of the value in this process's memory, or in memory that it shares with
  /// others, which lives as long as some process of the job has references to it. This process owns
  /// it: when it ends, the object is lost. Objects of numbers, strings and bytes (BlockType) cost
  /// one memcpy, others are encoded. Errors: resource_exhausted, with who holds the node's memory.
  template <class T>
  Result<ObjectRef<T>> put(const T& value) {
    return put_object(objects(), value);
  }
  /// Fetches an object: without a copy from a process of this machine, else over the network, once
  /// for all processes of this one. Blocks at most `timeout`. Errors: object_lost with the owner
  /// and the cause; timed_out; resource_exhausted; cancelled during shutdown.
  template <class T>
  Result<ObjectView<T>> get(const ObjectRef<T>& ref, std::chrono::nanoseconds timeout) {
    return get_object(objects(), hub(), ref, timeout);
  }
  /// Waits until `count` of the objects can be fetched, or are lost (get says so), at most
  /// `timeout`. Both lists are in the order of `refs`; no more than `count` are ready.
  template <class T>
  WaitedRefs<T> wait(const std::vector<ObjectRef<T>>& refs, std::size_t count,
                     std::chrono::nanoseconds timeout) {
    return wait_for_objects(objects(), std::span<const ObjectRef<T>>(refs), count, timeout);
  }
  /// Asks that the task whose result the object is (submit_object) be not run, or not to its end,
  /// as Future::cancel does; then get says `cancelled`. Any process with a reference may ask, for
  /// all others. Nothing happens to an object that is there, nor if its owner is gone.
  template <class T>
  void cancel(const ObjectRef<T>& ref) {
    objects().cancel(ref.share());
  }
  /// The objects of this process.
  virtual ObjectStore& objects() = 0;

  /// The call plane of this process.
  virtual std::weak_ptr<CallHub> hub() const = 0;

 protected:
  ~ObjectAccess() = default;
};

}  // namespace troupe
