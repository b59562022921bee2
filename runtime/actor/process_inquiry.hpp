#pragma once

#include "runtime/call/call_observer.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/control/messages.hpp"
#include "runtime/object/object_store.hpp"

namespace troupe {

/// What a process answers to an inquiry about its calls or its objects (Inquiry says in what form).
Bytes answer_inquiry(CallObserver& observer, const ObjectStore& objects, const AskProcesses& ask);

}  // namespace troupe
