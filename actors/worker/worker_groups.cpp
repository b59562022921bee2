#include "actors/worker/worker_groups.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "parallel/collectives/shm_collectives.hpp"
#include "runtime/memory/shared_memory.hpp"

namespace troupe {
namespace {

/// Tensor ranks do the same work at the same time.
constexpr auto tensor_timeout = std::chrono::seconds(30);
/// A stage waits as long as the one before it computes, and so do the ranks that wait for it. Who
/// is gone is told by supervision, not by this.
constexpr auto step_timeout = std::chrono::minutes(10);

constexpr std::size_t slot_bytes = 1u << 20;

}  // namespace

Result<Mesh> mesh_of(const WorkerSpec& spec) {
  return Mesh::create({.data = spec.data_parallel_size,
                       .pipeline = spec.pipeline_parallel_size,
                       .tensor = spec.tensor_parallel_size},
                      spec.expert_parallel_size);
}

std::string epoch_name(std::uint32_t epoch) { return fmt::format("epoch {}", epoch); }

Result<std::unique_ptr<WorkerGroups>> WorkerGroups::open(ActorContext& context,
                                                         const WorkerSpec& spec,
                                                         std::size_t stage_bytes) {
  TROUPE_TRY(const Mesh mesh, mesh_of(spec));
  std::unique_ptr<WorkerGroups> groups(new WorkerGroups(mesh, spec));
  groups->tensor_.ranks = mesh.group(MeshDimension::tensor, spec.rank);
  groups->pipeline_.ranks = mesh.group(MeshDimension::pipeline, spec.rank);
  if (spec.expert_parallel_size > 1) groups->experts_.ranks = mesh.dispatch_group(spec.rank);
  TROUPE_CHECK(groups->attach(context, "tensor", groups->tensor_, default_mailbox_bytes));
  // A stage can be two passes ahead of the next one.
  TROUPE_CHECK(groups->attach(context, "pipeline", groups->pipeline_,
                              std::max(default_mailbox_bytes, 2 * stage_bytes + 64)));
  TROUPE_CHECK(groups->attach(context, "experts", groups->experts_, default_mailbox_bytes));
  if (const auto& tensor = groups->tensor_.collectives) tensor->set_timeout(tensor_timeout);
  return groups;
}

Result<void> WorkerGroups::attach(ActorContext& context, std::string_view name, Group& group,
                                  std::size_t mailbox_bytes) {
  const auto size = static_cast<int>(group.ranks.size());
  if (size < 2) return {};
  const auto own = std::ranges::find(group.ranks, spec_.rank) - group.ranks.begin();
  TROUPE_TRY(UniqueFd fd,
             context.shared_memory(fmt::format("{}/{} of rank {}", epoch_name(spec_.epoch), name,
                                               group.ranks.front()),
                                   shm_collectives_bytes(size, slot_bytes, mailbox_bytes)));
  TROUPE_TRY(SharedMemory region, SharedMemory::map(std::move(fd)));
  TROUPE_TRY(group.collectives,
             ShmCollectives::attach(std::move(region), static_cast<int>(own), size, mailbox_bytes));
  group.collectives->set_timeout(step_timeout);
  return {};
}

GroupAddresses WorkerGroups::addresses() const { return {}; }

Result<void> WorkerGroups::connect(const GroupPeers&) { return {}; }

ParallelContext WorkerGroups::context() const {
  return {.mesh = mesh_,
          .rank = spec_.rank,
          .sequence_parallel = spec_.sequence_parallel,
          .tensor = tensor_.collectives.get(),
          .pipeline = pipeline_.collectives.get(),
          .experts = experts_.collectives.get()};
}

void WorkerGroups::abort() {
  for (Group* group : {&tensor_, &pipeline_, &experts_}) {
    if (group->collectives) group->collectives->abort();
  }
}

}  // namespace troupe
