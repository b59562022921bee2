#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <cuda_runtime.h>

#include "models/ops/attention_ops.hpp"
#include "models/ops/cuda/attention/batch_plans.hpp"
#include "models/ops/cuda/attention/prefix_kernel.hpp"
#include "models/ops/shared_prefixes.hpp"

namespace troupe {

/// The items of the prefixes that a batch's rows share, and what each row leaves to them. As many
/// entries for every batch of as many rows.
class PrefixPlan : public ItemPlan<PrefixItem> {
 public:
  /// What a row need not read itself.
  struct Share {
    std::int32_t positions = 0;  ///< from the first on
    std::int16_t parts = 0;
    std::int32_t slot = 0;  ///< of the first part
  };

  struct Limits {
    std::int64_t max_slots = 0;  ///< parts of rows
    bool always = false;         ///< also where it does not pay
  };

  using ItemPlan::ItemPlan;

  /// Plans a batch and enqueues the upload of the plan, if reading prefixes once pays and the parts
  /// fit; otherwise there is nothing to do, and `cascades` is false. Errors: internal,
  /// resource_exhausted.
  Result<void> make(const AttentionShape& shape, const AttentionBatch& batch, const Limits& limits,
                    cudaStream_t stream);

  bool cascades() const { return !shares_.empty(); }
  Share share_of(std::int32_t row) const {
    return cascades() ? shares_[static_cast<std::size_t>(row)] : Share();
  }
  /// PlannedAttention::shared_positions.
  std::int64_t shared_positions() const { return shared_positions_; }

  const PrefixRow* rows() const { return reinterpret_cast<const PrefixRow*>(items() + entries()); }

 private:
  /// A prefix by tiles of positions.
  struct Prefix {
    SharedPrefix shared;
    std::int64_t positions = 0, tiles = 0;
    std::int64_t blocks = 0;  ///< for all of its rows, of a KV head

    std::int64_t saved_positions() const {
      return (std::ssize(shared.sequences) - blocks) * positions;
    }
  };

  /// The prefixes that are read once; none if that does not pay.
  static std::vector<Prefix> prefixes_of(const AttentionShape& shape, const AttentionBatch& batch,
                                         bool always);
  Result<void> fill(std::span<const Prefix> prefixes, std::int64_t entries,
                    std::int64_t tiles_of_part, int tile, const AttentionBatch& batch,
                    cudaStream_t stream);

  std::vector<Share> shares_;  ///< of each row
  std::int64_t shared_positions_ = 0;
};

}  // namespace troupe
