#pragma once

namespace troupe {

/// Hears when a thread waits for others, so that another thread can do its work meanwhile. A leaf
/// of the lock order: it may be called with any lock held.
class BlockingObserver {
 public:
  virtual void begin_blocking() noexcept = 0;
  virtual void end_blocking() noexcept = 0;

 protected:
  ~BlockingObserver() = default;
};

/// Has the observer hear of the calling thread's waits from now on; null: nobody.
void set_blocking_observer(BlockingObserver* observer);

/// While it lives, the calling thread says that it waits. All waits of the runtime with a Deadline
/// for calls, shared memory and channels do; a wait of another kind may, in a method of an actor
/// that shares its process's TaskPool. Of scopes within each other the outermost counts. Costs a
/// look at a thread-local variable where nobody observes.
class BlockingScope {
 public:
  BlockingScope();
  ~BlockingScope();
  BlockingScope(const BlockingScope&) = delete;
  BlockingScope& operator=(const BlockingScope&) = delete;

 private:
  BlockingObserver* const observer_;
};

}  // namespace troupe
