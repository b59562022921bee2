#include "tests/golden/support/mesh_ranks.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "parallel/collectives/shm/shm_collectives.hpp"
#include "runtime/memory/shared_memory.hpp"
#include "tests/golden/support/golden_model.hpp"

namespace troupe::golden {

namespace {

/// Joins every rank's collectives of the group that `members(rank)` lists, in that order.
template <class Members>
Result<std::vector<std::unique_ptr<Collectives>>> join(const MeshRanks& ranks, int world,
                                                       const Members& members) {
  std::vector<std::unique_ptr<Collectives>> joined(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    const std::vector<int> group = members(rank);
    if (group.size() == 1 || group.front() != rank) continue;
    const int size = static_cast<int>(group.size());
    TROUPE_TRY(const SharedMemory region, SharedMemory::create(shm_collectives_bytes(size)));
    for (int i = 0; i < size; ++i) {
      TROUPE_TRY(UniqueFd fd, region.duplicate_fd());
      TROUPE_TRY(SharedMemory mapped, SharedMemory::map(std::move(fd)));
      auto& seat = joined[static_cast<std::size_t>(group[static_cast<std::size_t>(i)])];
      TROUPE_TRY(seat, ShmCollectives::attach(std::move(mapped), i, size));
      if (ranks.wrap) seat = ranks.wrap(std::move(seat));
    }
  }
  return joined;
}

}  // namespace

Result<std::vector<std::vector<float>>> run_ranks(const std::filesystem::path& folder,
                                                  DType precision, const MeshRanks& ranks,
                                                  const RankBody& body) {
  TROUPE_TRY(const Mesh mesh,
             Mesh::create(ranks.shape, ranks.expert_parallel_size, ranks.data_parallel_attention));
  const int world = mesh.world_size();
  TROUPE_TRY(const auto tensor,
             join(ranks, world, [&](int rank) { return mesh.group(MeshDimension::tensor, rank); }));
  TROUPE_TRY(const auto context, join(ranks, world, [&](int rank) {
               return mesh.group(MeshDimension::context, rank);
             }));
  TROUPE_TRY(const auto pipeline, join(ranks, world, [&](int rank) {
               return mesh.group(MeshDimension::pipeline, rank);
             }));
  TROUPE_TRY(const auto experts, join(ranks, world, [&](int rank) {
               return ranks.expert_parallel_size > 1 ? mesh.dispatch_group(rank)
                                                     : std::vector<int>{rank};
             }));
  TROUPE_TRY(const auto dense, join(ranks, world, [&](int rank) {
               return ranks.data_parallel_attention ? mesh.dense_group(rank)
                                                    : std::vector<int>{rank};
             }));
  const auto run_rank = [&](int rank) -> Result<std::vector<float>> {
    const auto at = static_cast<std::size_t>(rank);
    TROUPE_TRY(auto ops, make_golden_ops(precision, rank, ranks.deterministic, ranks.encoding));
    std::vector<std::unique_ptr<Collectives>> on_device;
    std::vector<RankGroup> groups;
    for (const auto* group : {&tensor, &context, &pipeline, &experts, &dense}) {
      Collectives* const host = (*group)[at].get();
      groups.emplace_back(host);
      if (host == nullptr) continue;
      TROUPE_TRY(auto joined, join_golden_ranks(*ops, *host));
      if (joined == nullptr) continue;
      TROUPE_CHECK(joined->barrier());
      if (ranks.wrap_device) joined = ranks.wrap_device(std::move(joined));
      groups.back().device = joined.get();
      on_device.push_back(std::move(joined));
    }
    const ParallelContext parallel{.mesh = mesh,
                                   .rank = rank,
                                   .sequence_parallel = ranks.sequence_parallel,
                                   .tensor = groups[0],
                                   .context = groups[1],
                                   .pipeline = groups[2],
                                   .experts = groups[3],
                                   .dense = groups[4]};
    TROUPE_TRY(const LoadedModel loaded,
               load(folder, precision, parallel, std::move(ops), ranks.deterministic,
                    ranks.kv_codes, ranks.kv_residuals, ranks.encoding, ranks.quantize_head));
    auto found = body(*loaded.runner, rank);
    // No rank's memory is freed while another still reads it.
    for (const auto& group : on_device) {
      if (found.ok()) TROUPE_CHECK(group->barrier());
    }
    return found;
  };
  std::vector<Result<std::vector<float>>> outcomes(static_cast<std::size_t>(world),
                                                   std::vector<float>());
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        auto& outcome = outcomes[static_cast<std::size_t>(rank)];
        outcome = run_rank(rank);
        if (outcome.ok()) return;
        for (const auto* groups : {&tensor, &context, &pipeline, &experts, &dense}) {
          for (const auto& group : *groups) {
            if (group) group->abort();
          }
        }
      });
    }
  }
  // Report the cause before its consequences.
  const auto failed = [](const auto& outcome) { return !outcome.ok(); };
  const auto cause = std::ranges::find_if(outcomes, [&](const auto& outcome) {
    return failed(outcome) && outcome.error().code != ErrorCode::cancelled;
  });
  if (cause != outcomes.end()) return cause->error();
  std::vector<std::vector<float>> results;
  for (auto& outcome : outcomes) {
    if (failed(outcome)) return outcome.error();
    results.push_back(std::move(outcome).value());
  }
  return results;
}

}  // namespace troupe::golden
