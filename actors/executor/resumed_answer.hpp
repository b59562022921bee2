#pragma once

#include <vector>

#include "actors/executor/answer.hpp"
#include "actors/scheduler/sequence_group.hpp"
#include "actors/scheduler/sequence_update.hpp"

namespace troupe {

/// Brings a new answer to where the updates of an unfinished one have brought that
/// (RequestProgress), and adds to its `spec` which sequences go on, and from where.
void resume(Answer& answer, std::vector<SequenceUpdate> progress, SequenceGroupSpec& spec);

}  // namespace troupe
