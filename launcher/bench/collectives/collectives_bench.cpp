#include "launcher/bench/collectives/collectives_bench.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "launcher/bench/collectives/group_timer.hpp"
#include "launcher/bench/common/part_bench.hpp"

namespace troupe {
namespace {

/// The groups of rank 0, with the calls that models make in them.
std::vector<GroupTimes> groups_of(const JobPlan& plan, const CollectivesBenchOptions& options) {
  const EngineSpec& engine = plan.engine;
  const DType dtype =
      engine.dtype == DType::bf16 && engine.device == DeviceKind::cuda ? DType::bf16 : DType::f32;
  const auto group = [&](std::string name, std::size_t ranks, std::vector<std::string> calls) {
    return GroupTimes{.group = std::move(name),
                      .ranks = static_cast<int>(ranks),
                      .calls = std::move(calls),
                      .device = engine.device,
                      .dtype = dtype,
                      .collectives = engine.collectives,
                      .bytes = options.bytes,
                      .seconds = options.seconds};
  };
  std::vector<GroupTimes> groups;
  const Mesh& mesh = plan.mesh;
  if (mesh.shape().tensor > 1) {
    groups.push_back(group("tensor", static_cast<std::size_t>(mesh.shape().tensor),
                           {"sum", "scatter", "gather", "exchange"}));
  }
  if (mesh.shape().context > 1) {
    groups.push_back(
        group("context", static_cast<std::size_t>(mesh.shape().context), {"gather", "exchange"}));
  }
  if (mesh.expert_parallel_size() > 1) {
    groups.push_back(group("experts", mesh.dispatch_group(0).size(), {"exchange"}));
  }
  if (mesh.data_parallel_attention()) {
    groups.push_back(group("dense", static_cast<std::size_t>(mesh.dense_size()),
                           {"scatter", "gather", "exchange"}));
  }
  if (mesh.shape().pipeline > 1) {
    groups.push_back(group("stages", 2, {"message"}));
  }
  return groups;
}

/// A copy within memory, in bytes copied per second.
double copy_bytes_per_second() {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  const std::vector<char> from(bytes, 1);
  std::vector<char> to(bytes, 2);
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), bytes);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(bytes) / took.count());
  }
  return to[bytes / 2] == 1 ? best : 0;
}

Result<CollectivesFigures> measure(const std::vector<GroupTimes>& groups) {
  const GroupTimes& first = groups.front();
  const bool on_gpu = first.device == DeviceKind::cuda;
  CollectivesFigures figures{
      .device = on_gpu ? "GPUs" : "CPU, " + first.collectives,
      .dtype = std::string(to_string(first.dtype)),
      .ceiling = on_gpu ? "a message of 256 MiB between two GPUs" : "a copy of 64 MiB of memory"};
  if (on_gpu) {
    TROUPE_TRY(figures.ceiling_bytes_per_second, message_bytes_per_second(first));
  } else {
    figures.ceiling_bytes_per_second = copy_bytes_per_second();
  }
  for (const GroupTimes& group : groups) {
    TROUPE_TRY(GroupFigures measured, time_group(group));
    figures.groups.push_back(std::move(measured));
  }
  return figures;
}

}  // namespace

ExitCode run_collectives_bench(const CollectivesBenchOptions& options) {
  const auto plan = plan_part_bench(options);
  if (!plan.ok()) return tell(plan.error(), ExitCode::refused);
  const std::vector<GroupTimes> groups = groups_of(*plan, options);
  if (groups.empty()) {
    const Error alone = fail(ErrorCode::invalid_argument,
                             "this topology's workers tell each other nothing: give sizes, as in "
                             "--set parallel.tensor_parallel_size=2");
    return tell(alone, ExitCode::refused);
  }
  const auto figures = measure(groups);
  if (!figures.ok()) return tell(figures.error(), ExitCode::failed);
  return show_figures(to_table(*figures), to_json(*figures), options);
}

}  // namespace troupe
