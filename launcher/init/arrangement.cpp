#include "launcher/init/arrangement.hpp"

#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "launcher/job/mesh_table.hpp"
#include "runtime/base/format_bytes.hpp"

namespace troupe {
namespace {

/// The most GPUs of a replica: more are rarely connected directly in one machine.
constexpr int max_tensor = 8;
/// Share of a GPU's memory for weights, as a rule of thumb.
constexpr double weight_share = 0.75;

bool holds_full_context(const JobPlan& plan) {
  return plan.kv_blocks / plan.engine.cache_groups * plan.engine.block_size >=
         plan.engine.max_model_len;
}

std::string where(const Arrangement& arrangement, int gpus) {
  if (gpus == 1) return "One worker on the GPU";
  if (arrangement.tensor == 1) {
    return fmt::format("A replica on each of {} GPUs", arrangement.data);
  }
  if (arrangement.data == 1) {
    return fmt::format("One replica, whose layers {} GPUs share", arrangement.tensor);
  }
  return fmt::format("{} replicas, whose layers {} GPUs share each", arrangement.data,
                     arrangement.tensor);
}

std::string reason(const Arrangement& arrangement, const Machine& machine, const JobPlan& plan,
                   bool full_context) {
  std::string text = where(arrangement, machine.gpus.count);
  const std::uint64_t held = plan.ranks.front().weight_bytes;
  if (machine.gpus.memory_bytes == 0) {
    return text + fmt::format(": {} of weights each.", format_bytes(held));
  }
  text += fmt::format(": {} of weights each, and GPUs have {}", format_bytes(held),
                      format_bytes(machine.gpus.memory_bytes));
  if (arrangement.tensor > 1) text += "; fewer would not hold them and a full context";
  if (!full_context) {
    text += fmt::format("; the KV cache has room for {} tokens",
                        plan.kv_blocks / plan.engine.cache_groups * plan.engine.block_size);
  }
  return text + ".";
}

Error too_large(const Machine& machine, std::uint64_t weight_bytes) {
  const double needed = std::ceil(static_cast<double>(weight_bytes) /
                                  (weight_share * static_cast<double>(machine.gpus.memory_bytes)));
  return fail(ErrorCode::resource_exhausted,
              "the weights are {}, but the machine has {} GPU{} of {}: it takes about {} of them. "
              "For a machine that has them give --assume-gpu; for the CPU --assume-gpu none",
              format_bytes(weight_bytes), machine.gpus.count, machine.gpus.count == 1 ? "" : "s",
              format_bytes(machine.gpus.memory_bytes), needed);
}

}  // namespace

Result<Arrangement> arrange(const Machine& machine, std::uint64_t weight_bytes,
                            const PlanArrangement& plan) {
  const int gpus = machine.gpus.count;
  if (gpus == 0) {
    return Arrangement{
        .reason = fmt::format(
            "One worker on all cores ({}), so that its threads share the weights.", machine.cores)};
  }
  std::optional<Arrangement> best;
  std::optional<Error> refused;
  for (int tensor = 1; tensor <= std::min(gpus, max_tensor); tensor *= 2) {
    Arrangement tried{.tensor = tensor, .data = gpus / tensor, .reason = {}};
    const auto planned = plan(tried);
    if (!planned.ok()) {  // the size does not divide the model, so a larger one does not either
      if (!refused) refused = planned.error();
      break;
    }
    if (!planned->problems.empty()) continue;
    const bool full = holds_full_context(*planned);
    tried.reason = reason(tried, machine, *planned, full);
    best = tried;
    if (full) break;
  }
  if (best) return *best;
  if (refused && machine.gpus.memory_bytes == 0) return *refused;
  return too_large(machine, weight_bytes);
}

}  // namespace troupe
