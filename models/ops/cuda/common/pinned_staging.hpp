#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include <cuda_runtime.h>

#include "models/ops/ops.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Device memory that the host refills for each pass. The host side is double-buffered and
/// page-locked, so that a plan can be made while the previous one is still being copied. One thread
/// at a time.
class PlanMemory {
 public:
  /// Errors: resource_exhausted.
  static Result<std::unique_ptr<PlanMemory>> create(std::size_t bytes);
  ~PlanMemory();
  PlanMemory(const PlanMemory&) = delete;
  PlanMemory& operator=(const PlanMemory&) = delete;

  /// Returns the memory to fill and then upload; waits until its last upload is done. Errors:
  /// internal.
  Result<std::byte*> next();
  /// Enqueues the upload of the first `bytes` of the last next(). Errors: internal.
  Result<void> upload(std::size_t bytes, cudaStream_t stream);
  std::size_t bytes() const { return bytes_; }
  std::byte* device() const { return device_; }

 private:
  struct Copy {
    std::byte* host = nullptr;  ///< page-locked
    cudaEvent_t uploaded = nullptr;
  };

  explicit PlanMemory(std::size_t bytes) : bytes_(bytes) {}

  std::size_t bytes_;
  std::byte* device_ = nullptr;
  std::array<Copy, 2> copies_;
  std::size_t turn_ = 0;
};

/// Plans keyed by their block tables, of which a pass has one or two, and by part of the pass.
template <class Plan>
class PlansByTables {
 public:
  /// Returns the plan for `batch`, created on first use by Plan::create(). If tables changed so
  /// often that there are many plans, waits for `stream` and discards the one that was asked
  /// for least recently. Errors: those of create().
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
      TROUPE_TRY(entry.plan, Plan::create());
    }
    return entry.plan.get();
  }
  /// Returns null if there is none.
  const Plan* find(const AttentionBatch& batch) const {
    const auto found = plans_.find(key_of(batch));
    return found == plans_.end() ? nullptr : found->second.plan.get();
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
