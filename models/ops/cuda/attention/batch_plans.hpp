#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include <cuda_runtime.h>

#include "models/ops/attention_ops.hpp"
#include "models/ops/cuda/common/pinned_staging.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The plan of a batch, which the host makes once for all layers, in memory of its own that kernels
/// read.
class BatchPlan {
 public:
  explicit BatchPlan(std::unique_ptr<PinnedStaging> memory) : memory_(std::move(memory)) {}

 protected:
  std::unique_ptr<PinnedStaging> memory_;
};

/// A plan that is an array with an item for each block, or for several.
template <class Item>
class ItemPlan : public BatchPlan {
 public:
  static constexpr std::size_t bytes = std::size_t{4} << 20;  // of 131,072 items

  using BatchPlan::BatchPlan;
  std::int64_t entries() const { return static_cast<std::int64_t>(entries_.size()); }
  const Item* items() const { return reinterpret_cast<const Item*>(memory_->device()); }

 protected:
  /// Returns room for `entries` items of `rows` rows; `behind` bytes follow them. Errors:
  /// resource_exhausted, internal.
  Result<std::span<Item>> begin(std::int64_t entries, std::int64_t rows, std::size_t behind = 0) {
    const std::size_t wanted = static_cast<std::size_t>(entries) * sizeof(Item) + behind;
    if (wanted > memory_->bytes()) {
      return fail(ErrorCode::resource_exhausted, "attention of {} rows wants a plan of {} bytes",
                  rows, wanted);
    }
    TROUPE_TRY(std::byte* const host, memory_->next());
    entries_ = {reinterpret_cast<Item*>(host), static_cast<std::size_t>(entries)};
    behind_ = {host + entries_.size_bytes(), behind};
    return entries_;
  }
  /// What follows the items, on the host; on the device it is at items() + entries().
  std::span<std::byte> behind() const { return behind_; }
  /// Enqueues the upload of the first `filled` items, of empty ones for the others, and of what
  /// follows them. Errors: internal.
  Result<void> finish(std::size_t filled, cudaStream_t stream) {
    std::ranges::fill(entries_.subspan(filled), Item{});
    return memory_->upload(entries_.size_bytes() + behind_.size(), stream);
  }

 private:
  std::span<Item> entries_;
  std::span<std::byte> behind_;
};

/// Plans keyed by their block tables, of which a pass has one or two, and by part of the pass. A
/// Plan is a BatchPlan that says how many `bytes` it has.
template <class Plan>
class PlansByTables {
 public:
  /// Returns the plan for `batch`, created on first use. If tables changed so often that there are
  /// many plans, waits for `stream` and discards the one that was asked for least recently. Errors:
  /// resource_exhausted, internal.
  Result<Plan*> of(const AttentionBatch& batch, cudaStream_t stream) {
    const Key key = key_of(batch);
    if (plans_.size() >= max_plans && !plans_.contains(key)) {
      if (const cudaError_t error = cudaStreamSynchronize(stream); error != cudaSuccess) {
        return fail(ErrorCode::internal, "wait for plans: {}", cudaGetErrorString(error));
      }
      plans_.erase(std::ranges::min_element(
          plans_, {}, [](const auto& entry) { return entry.second.asked_for; }));
    }
    Entry& entry = plans_[key];
    entry.asked_for = ++times_asked_;
    if (entry.plan == nullptr) {
      TROUPE_TRY(auto memory, PinnedStaging::create(Plan::bytes));
      entry.plan = std::make_unique<Plan>(std::move(memory));
    }
    return entry.plan.get();
  }
  /// Returns the plan of a batch that was planned. Errors: internal.
  Result<const Plan*> made_for(const AttentionBatch& batch) const {
    const auto found = plans_.find(key_of(batch));
    if (found == plans_.end() || found->second.plan == nullptr) {
      return fail(ErrorCode::internal, "attention that was not planned");
    }
    return static_cast<const Plan*>(found->second.plan.get());
  }

 private:
  /// More than a pass and a draft model's pass have.
  static constexpr std::size_t max_plans = 32;

  using Key = std::pair<const void*, int>;
  static Key key_of(const AttentionBatch& batch) { return {batch.block_tables.data(), batch.part}; }

  struct Entry {
    std::unique_ptr<Plan> plan;
    std::uint64_t asked_for = 0;  ///< when: the number of the request
  };
  std::map<Key, Entry> plans_;
  std::uint64_t times_asked_ = 0;
};

}  // namespace troupe
