#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// What decides how a model is laid out on a machine.
struct Machine {
  int cores = 1;                        ///< logical ones
  int gpus = 0;                         ///< that this program can use
  std::uint64_t free_memory_bytes = 0;  ///< 0: not known
};

/// The machine that this process runs on.
Machine this_machine();

/// How many replicas of a model there are on one machine, each one worker, and why.
struct Arrangement {
  int data = 1;
  std::string reason;  ///< a sentence
};

/// A replica on each GPU, which must hold all of it: workers on GPUs share no model in this
/// version. Without GPUs one worker on all cores. `weight_bytes`: of one whole model.
Arrangement arrange(const Machine& machine, std::uint64_t weight_bytes);

}  // namespace troupe
