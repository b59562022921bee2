#pragma once

#include "runtime/call/call_observer.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/control/messages.hpp"

namespace troupe {

/// What a process answers to an inquiry about its calls (Inquiry says in what form).
Bytes answer_inquiry(CallObserver& observer, const AskProcesses& ask);

}  // namespace troupe
