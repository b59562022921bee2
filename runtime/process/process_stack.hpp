#pragma once

#include <chrono>
#include <string>

#include "runtime/base/result.hpp"

namespace troupe {

/// The stacks of all threads of a process, as text: a line "thread 12 (name):" for each, then its
/// frames, the innermost first, with names that people read. The process stands still meanwhile,
/// and need not answer: it may be stopped or busy. It is read by eu-stack, of Debian's package
/// elfutils. Errors: not_found without that program, and how to install it; permission_denied if
/// this process may not trace that one; timed_out; not_found if it has ended.
Result<std::string> process_stack(int pid, std::chrono::milliseconds timeout);

/// The same of what eu-stack has printed.
std::string readable_stack(std::string_view printed, int pid);

/// Lets the parent of this process, and its children, trace it also where the kernel's Yama module
/// allows that to ancestors alone.
void let_parent_trace();

}  // namespace troupe
