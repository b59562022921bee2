#pragma once

#include <cstdint>

namespace troupe {

/// While it lives, the thread that made it, and for good the threads that it starts meanwhile, ask
/// the kernel for its shortest time slice: once woken they run almost at once, although many others
/// want to run, and have no more of the processor's time than these. For threads that do little but
/// must not be late: on two cores with 500 runnable processes others waited for up to 1.1 s each
/// time. Needs no privilege; without effect on Linux before 6.12.
class PromptThreads {
 public:
  PromptThreads();
  ~PromptThreads();
  PromptThreads(const PromptThreads&) = delete;
  PromptThreads& operator=(const PromptThreads&) = delete;

 private:
  std::uint64_t slice_before_ns_ = 0;  ///< of this thread; 0: the kernel's own
};

}  // namespace troupe
