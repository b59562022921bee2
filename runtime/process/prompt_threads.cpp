#include "runtime/process/prompt_threads.hpp"

#include <cstdint>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace troupe {
namespace {

constexpr std::uint64_t shortest_slice_ns = 100'000;

/// sched_setattr(2)'s argument, for which the C library has no declaration.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;  ///< of SCHED_OTHER the slice, in nanoseconds
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};

/// Sets the calling thread's slice, which threads inherit that it starts; returns the one before.
/// Errors are of no interest: the thread then runs as any other.
std::uint64_t exchange_slice(std::uint64_t slice_ns) {
  SchedulingAttributes attributes;
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return slice_ns;
  if (attributes.policy != SCHED_OTHER) return slice_ns;  // there it means something else
  const auto before = attributes.runtime;
  attributes.runtime = slice_ns;
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
  return before;
}

}  // namespace

PromptThreads::PromptThreads() : slice_before_ns_(exchange_slice(shortest_slice_ns)) {}

PromptThreads::~PromptThreads() { exchange_slice(slice_before_ns_); }

}  // namespace troupe
