#include "launcher/init/arrangement.hpp"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "actors/driver/kv_budget.hpp"
#include "launcher/job/mesh_table.hpp"
#include "models/ops/device/device.hpp"

namespace troupe {

Machine this_machine() {
  Machine machine;
  machine.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  machine.free_memory_bytes = available_memory_bytes().value_or(0);
  const auto gpus = count_gpus();  // an error says that the part for GPUs is not there
  machine.gpus = gpus.ok() ? *gpus : 0;
  return machine;
}

Arrangement arrange(const Machine& machine, std::uint64_t weight_bytes) {
  if (machine.gpus > 0) {
    const std::string where =
        machine.gpus == 1
            ? std::string("One worker on the GPU, whose memory")
            : fmt::format("A replica on each of the {} GPUs, whose memories", machine.gpus);
    return {machine.gpus,
            fmt::format("{} must hold all {} of weights and the KV cache; for a "
                        "model that is larger, set cluster.device: cpu and this to 1.",
                        where, format_bytes(weight_bytes))};
  }
  return {1, fmt::format("One worker on all cores ({}), so that its threads share the weights.",
                         machine.cores)};
}

}  // namespace troupe
