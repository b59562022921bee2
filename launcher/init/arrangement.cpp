#include "launcher/init/arrangement.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <fstream>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "actors/driver/kv_budget.hpp"
#include "launcher/config/cluster_config.hpp"
#include "launcher/job/mesh_table.hpp"
#include "launcher/job/topology.hpp"

namespace troupe {
namespace {

/// The number at the beginning of `text`, which moves behind it; -1 if there is none.
int take_number(std::string_view& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return -1;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

/// The largest power of two up to `most` that the sizes of the model can be split by.
int largest_tensor_size(int most, const ModelConfig& model) {
  Config config;
  config.model.path = "model";
  config.parallel.data_parallel_size = config.parallel.pipeline_parallel_size = 1;
  config.parallel.context_parallel_size = 1;
  for (int size = static_cast<int>(std::bit_floor(static_cast<unsigned>(most))); size > 1;
       size /= 2) {
    config.parallel.tensor_parallel_size = size;
    if (plan_mesh(config, model).ok()) return size;
  }
  return 1;
}

}  // namespace

int count_numa_nodes(const std::string& list) {
  std::string_view rest = list;
  int nodes = 0;
  while (!rest.empty() && rest.front() != '\n') {
    const int first = take_number(rest);
    int last = first;
    if (!rest.empty() && rest.front() == '-') {
      rest.remove_prefix(1);
      last = take_number(rest);
    }
    if (first < 0 || last < first) return 1;
    nodes += last - first + 1;
    if (!rest.empty() && rest.front() == ',') rest.remove_prefix(1);
  }
  return std::max(nodes, 1);
}

Machine this_machine() {
  Machine machine;
  machine.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  machine.free_memory_bytes = available_memory_bytes().value_or(0);
  std::ifstream file("/sys/devices/system/node/has_normal_memory");
  std::string list;
  if (std::getline(file, list)) {
    machine.numa_nodes = std::min(count_numa_nodes(list), machine.cores);
  }
  return machine;
}

Arrangement arrange(const Machine& machine, const ModelConfig& model, std::uint64_t weight_bytes) {
  const int nodes = std::max(1, machine.numa_nodes);
  if (nodes == 1) {
    return {1, 1,
            fmt::format("One worker on all cores ({}): within one memory nothing is faster.",
                        machine.cores)};
  }
  const std::uint64_t weights = weight_bytes * static_cast<std::uint64_t>(nodes);
  if (machine.free_memory_bytes == 0 || weights <= machine.free_memory_bytes / 2) {
    return {nodes, 1,
            fmt::format("A replica for each of the {} NUMA nodes: they need nothing of each other, "
                        "and their weights, {}, leave room for KV.",
                        nodes, format_bytes(weights))};
  }
  const int tensor = largest_tensor_size(nodes, model);
  if (tensor == 1) {
    return {1, 1,
            fmt::format("One worker: {} NUMA nodes have no memory for a replica each, and the "
                        "model's sizes cannot be split.",
                        nodes)};
  }
  return {1, tensor,
          fmt::format("Split over {} workers: {} NUMA nodes have no memory for a replica each.",
                      tensor, nodes)};
}

}  // namespace troupe
