#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/layers/parallel/dense_group.hpp"
#include "models/layers/parallel/parallel_context.hpp"
#include "parallel/collectives/collectives.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The replicas of a step domain, as a rank of one of them sees them: before each pass they tell
/// each other what they have to compute. One thread at a time.
class StepPartners {
 public:
  /// What one replica has for a pass.
  struct Offer {
    ReplicaRows rows = {};
    std::int64_t graph_rows = 0;  ///< the length at which it could be captured; 0: it cannot be
    std::int64_t room = 0;        ///< the most rows that it could be padded to
  };

  /// Those of `parallel`, whose collectives outlive the object; none if the replica steps alone.
  static std::optional<StepPartners> of(const ParallelContext& parallel);

  /// Tells the others what this replica has, and learns what they have. Every rank of the domain's
  /// stage calls it. Errors: those of Collectives.
  Result<void> meet(const Offer& own);

  /// Of all replicas in the pass that they met for.
  std::int64_t tokens() const;
  /// True if they share dense layers, so that each must know the rows of all.
  bool share_dense_layers() const { return shares_dense_; }
  std::span<const ReplicaRows> replicas() const { return rows_; }  ///< of each, in order
  /// Where they share dense layers: the length that all are padded to, so that one captured pass
  /// serves whatever number of requests each has. 0: this pass is not captured, because a replica
  /// has rows that cannot be, or no room.
  std::int64_t graph_rows() const { return graph_rows_; }

 private:
  StepPartners(Collectives& collectives, int tensor_ranks, bool shares_dense)
      : collectives_(&collectives), tensor_ranks_(tensor_ranks), shares_dense_(shares_dense) {}
  void agree_on_graph(std::span<const Offer> offers);

  Collectives* collectives_;
  int tensor_ranks_;
  bool shares_dense_;
  std::vector<ReplicaRows> rows_;
  std::int64_t graph_rows_ = 0;
};

}  // namespace troupe
