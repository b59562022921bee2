#pragma once

#include <cstdint>
#include <string>

#include "models/config/model_config.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What decides how a model is laid out on a machine.
struct Machine {
  int cores = 1;                        ///< logical ones
  int numa_nodes = 1;                   ///< groups of cores with memory of their own
  std::uint64_t free_memory_bytes = 0;  ///< 0: not known
};

/// The machine that this process runs on.
Machine this_machine();

/// Nodes in a list as Linux writes it ("0-1,4"); 1 for what is no such list.
int count_numa_nodes(const std::string& list);

/// Parallel sizes for one machine, and why these.
struct Arrangement {
  int data = 1;
  int tensor = 1;
  std::string reason;  ///< a sentence
};

/// Workers that compute on memory of their own: one for each NUMA node. As replicas, which need
/// nothing of each other, while their weights leave half of the free memory to KV caches; else the
/// tensors are split over as many workers as the model's sizes allow. `weight_bytes`: of one whole
/// model.
Arrangement arrange(const Machine& machine, const ModelConfig& model, std::uint64_t weight_bytes);

}  // namespace troupe
