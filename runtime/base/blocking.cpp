#include "runtime/base/blocking.hpp"

#include <utility>

namespace troupe {
namespace {

// Aligned for the same reason as thread_runs_callback (runtime/call/callback.cpp).
alignas(64) thread_local BlockingObserver* thread_observer = nullptr;

}  // namespace

void set_blocking_observer(BlockingObserver* observer) { thread_observer = observer; }

BlockingScope::BlockingScope() : observer_(std::exchange(thread_observer, nullptr)) {
  if (observer_ != nullptr) observer_->begin_blocking();
}

BlockingScope::~BlockingScope() {
  if (observer_ == nullptr) return;
  observer_->end_blocking();
  thread_observer = observer_;
}

}  // namespace troupe
