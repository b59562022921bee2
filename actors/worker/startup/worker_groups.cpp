#include "actors/worker/startup/worker_groups.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "actors/step/step_address.hpp"
#include "actors/worker/timed_collectives.hpp"
#include "models/ops/device/device.hpp"
#include "parallel/collectives/hierarchical/hierarchical_collectives.hpp"
#include "parallel/collectives/shm/shm_collectives.hpp"
#include "runtime/memory/shared_memory.hpp"

namespace troupe {
namespace {

/// Tensor ranks do the same work at the same time, and so do context ranks.
constexpr std::chrono::milliseconds tensor_timeout = std::chrono::seconds(30);
/// A stage waits as long as the previous one computes, and so do the ranks that wait for it.
/// Supervision notices dead ranks, not this timeout.
constexpr std::chrono::milliseconds step_timeout = std::chrono::minutes(10);

constexpr std::size_t slot_bytes = 1u << 20;

/// For groups on one node.
constexpr const char* loopback_interface = "lo";

}  // namespace

Result<std::unique_ptr<WorkerGroups>> WorkerGroups::open(ActorContext& context,
                                                         const WorkerSpec& spec,
                                                         std::size_t stage_bytes) {
  TROUPE_TRY(const Mesh mesh, mesh_of(spec));
  std::unique_ptr<WorkerGroups> groups(new WorkerGroups(mesh, spec));
  // A stage can be two passes ahead of the next one.
  const std::size_t stage_room = std::max(default_mailbox_bytes, 3 * stage_bytes);
  TROUPE_CHECK(groups->open_group(context, "tensor", mesh.group(MeshDimension::tensor, spec.rank),
                                  groups->tensor_, default_mailbox_bytes));
  TROUPE_CHECK(groups->open_group(context, "context", mesh.group(MeshDimension::context, spec.rank),
                                  groups->context_, default_mailbox_bytes));
  TROUPE_CHECK(groups->open_group(context, "pipeline",
                                  mesh.group(MeshDimension::pipeline, spec.rank), groups->pipeline_,
                                  stage_room));
  if (spec.expert_parallel_size > 1) {
    TROUPE_CHECK(groups->open_group(context, "experts", mesh.dispatch_group(spec.rank),
                                    groups->experts_, default_mailbox_bytes));
  }
  return groups;
}

Result<void> WorkerGroups::open_group(ActorContext& context, std::string_view name,
                                      std::vector<int> ranks, Group& group,
                                      std::size_t room_bytes) {
  group.own = static_cast<int>(std::ranges::find(ranks, spec_.rank) - ranks.begin());
  group.ranks = std::move(ranks);
  const auto size = static_cast<int>(group.ranks.size());
  if (size < 2) return {};
  const std::vector<int> here = ranks_here(spec_, group.ranks);
  const bool on_one_node = here.size() == group.ranks.size();
  if (spec_.collectives == "shm") {
    auto& joined = on_one_node ? group.collectives : group.on_node;
    if (here.size() > 1) {
      TROUPE_TRY(joined, attach(context, group_name(name, group), here, room_bytes));
    }
    if (on_one_node) return {};
  }
  if (spec_.collectives != "shm" && spec_.collectives != "network") {
    return fail(ErrorCode::unsupported, "collectives \"{}\": expected shm or network",
                spec_.collectives);
  }
  const std::string interface = on_one_node ? loopback_interface : context.node_address();
  // Of this group alone: ranks that have restarted since, or are of other groups, cannot join it.
  ChannelScope scope{fmt::format("tensor plane/{}", group_name(name, group)), {}};
  for (const int rank : group.ranks) scope.members.push_back(worker_name(rank));
  TROUPE_TRY(const Key key, context.channel_key(scope));
  TROUPE_TRY(group.rendezvous,
             NetworkRendezvous::announce(interface, group.own, size, room_bytes, key,
                                         on_one_node ? PortRange{} : context.ports()));
  return {};
}

std::string WorkerGroups::group_name(std::string_view name, const Group& group) const {
  return fmt::format("{}/{} of rank {}", epoch_name(spec_.epoch), name, group.ranks.front());
}

Result<std::unique_ptr<Collectives>> WorkerGroups::attach(ActorContext& context,
                                                          const std::string& name,
                                                          const std::vector<int>& ranks,
                                                          std::size_t room_bytes) const {
  const auto size = static_cast<int>(ranks.size());
  const auto own = static_cast<int>(std::ranges::find(ranks, spec_.rank) - ranks.begin());
  TROUPE_TRY(UniqueFd fd,
             context.shared_memory(name, shm_collectives_bytes(size, slot_bytes, room_bytes)));
  TROUPE_TRY(SharedMemory region, SharedMemory::map(std::move(fd)));
  TROUPE_TRY(auto joined, ShmCollectives::attach(std::move(region), own, size, room_bytes));
  return std::unique_ptr<Collectives>(std::move(joined));
}

void WorkerGroups::complete(Group& group, std::unique_ptr<NetworkCollectives> links) const {
  std::vector<std::string> names;
  std::vector<int> node_of;
  for (const int rank : group.ranks) {
    const std::string name = spec_.nodes.empty() ? "" : spec_.nodes[static_cast<std::size_t>(rank)];
    const auto found = std::ranges::find(names, name);
    node_of.push_back(static_cast<int>(found - names.begin()));
    if (found == names.end()) names.push_back(name);
  }
  const bool is_hierarchical = spec_.collectives == "shm" && names.size() < group.ranks.size();
  if (!is_hierarchical) {
    group.collectives = std::move(links);
    return;
  }
  group.collectives = std::make_unique<HierarchicalCollectives>(
      std::move(group.on_node), std::move(links), std::move(node_of));
}

GroupAddresses WorkerGroups::addresses() const {
  const auto of = [](const Group& group) {
    return group.rendezvous ? group.rendezvous->addresses() : std::string();
  };
  return {.tensor = of(tensor_),
          .context = of(context_),
          .pipeline = of(pipeline_),
          .experts = of(experts_)};
}

Result<void> WorkerGroups::connect(const GroupPeers& peers, SpanRecorder& recorder) {
  // Every rank connects its groups in this order, so that no two ranks wait for each other.
  const std::pair<Group*, const std::vector<std::string>*> groups[] = {
      {&tensor_, &peers.tensor},
      {&context_, &peers.context},
      {&pipeline_, &peers.pipeline},
      {&experts_, &peers.experts}};
  for (const auto& [group, addresses] : groups) {
    if (group->rendezvous) {
      TROUPE_TRY(auto links, std::move(*group->rendezvous).connect(*addresses));
      group->rendezvous.reset();
      complete(*group, std::move(links));
    }
    if (group->collectives) {
      const bool computes_alike = group == &tensor_ || group == &context_;
      group->collectives->set_timeout(computes_alike ? tensor_timeout : step_timeout);
      const SpanKind kind = group == &pipeline_ ? SpanKind::stage : SpanKind::exchange;
      group->collectives =
          std::make_unique<TimedCollectives>(std::move(group->collectives), recorder, kind);
    }
  }
  return {};
}

Result<void> WorkerGroups::join_devices(Ops& ops) {
  const std::pair<Group*, const char*> groups[] = {{&tensor_, "tensor"},
                                                   {&context_, "context"},
                                                   {&pipeline_, "pipeline"},
                                                   {&experts_, "experts"}};
  for (const auto& [group, name] : groups) {
    if (!group->collectives) continue;
    const bool on_one_node = ranks_here(spec_, group->ranks).size() == group->ranks.size();
    TROUPE_TRY(group->on_device, join_ranks(ops, *group->collectives, {name, on_one_node}));
  }
  // They connect concurrently and are awaited one after another.
  for (const auto& [group, name] : groups) {
    if (group->on_device) TROUPE_CHECK(group->on_device->barrier());
  }
  return {};
}

ParallelContext WorkerGroups::context() const {
  const auto of = [](const Group& group) {
    Collectives* const host = group.collectives.get();
    return RankGroup(host, group.on_device ? group.on_device.get() : host);
  };
  return {.mesh = mesh_,
          .rank = spec_.rank,
          .sequence_parallel = spec_.sequence_parallel,
          .tensor = of(tensor_),
          .context = of(context_),
          .pipeline = of(pipeline_),
          .experts = of(experts_)};
}

void WorkerGroups::abort() {
  for (Group* group : {&tensor_, &context_, &pipeline_, &experts_}) {
    if (group->on_device) group->on_device->abort();
    if (group->collectives) group->collectives->abort();
  }
}

}  // namespace troupe
