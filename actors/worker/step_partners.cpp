#include "actors/worker/step_partners.hpp"

#include <algorithm>

namespace troupe {
namespace {

constexpr std::int64_t numbers = 4;  // of an Offer

}  // namespace

std::optional<StepPartners> StepPartners::of(const ParallelContext& parallel) {
  const Mesh& mesh = parallel.mesh;
  if (mesh.replicas_per_domain() == 1) return std::nullopt;
  const bool shares_dense = mesh.data_parallel_attention();
  const RankGroup& group = shares_dense ? parallel.dense : parallel.experts;
  return StepPartners(*group.host, mesh.shape().tensor, shares_dense);
}

Result<void> StepPartners::meet(const Offer& own) {
  const int ranks = collectives_->size();
  std::vector<std::int64_t> told = {own.rows.tokens, own.rows.head_rows, own.graph_rows, own.room};
  std::vector<std::int64_t> all(static_cast<std::size_t>(ranks * numbers));
  const std::vector<std::int64_t> one_each(static_cast<std::size_t>(ranks), 1);
  TROUPE_CHECK(collectives_->all_gather(Tensor(told.data(), DType::i64, {1, numbers}),
                                        Tensor(all.data(), DType::i64, {ranks, numbers}),
                                        one_each));
  // All tensor ranks of a replica say the same.
  std::vector<Offer> offers;
  rows_.clear();
  for (int rank = 0; rank < ranks; rank += tensor_ranks_) {
    const std::int64_t* const of = all.data() + rank * numbers;
    offers.push_back({{of[0], of[1]}, of[2], of[3]});
    rows_.push_back(offers.back().rows);
  }
  graph_rows_ = 0;
  if (shares_dense_) agree_on_graph(offers);
  return {};
}

void StepPartners::agree_on_graph(std::span<const Offer> offers) {
  std::int64_t longest = 0, room = offers.front().room;
  for (const Offer& offer : offers) {
    if (offer.rows.tokens > 0 && offer.graph_rows == 0) return;
    longest = std::max(longest, offer.graph_rows);
    room = std::min(room, offer.room);
  }
  if (longest == 0 || longest > room) return;
  graph_rows_ = longest;
  rows_.assign(offers.size(), {longest, longest});
}

std::int64_t StepPartners::tokens() const {
  std::int64_t tokens = 0;
  for (const ReplicaRows& rows : rows_) tokens += rows.tokens;
  return tokens;
}

}  // namespace troupe
