#pragma once

#include <cstdint>
#include <span>

#include "parallel/device/tensor.hpp"

namespace troupe {

/// A sequence that keeps `kept` of the `entries` of its cache.
struct CompactedSequence {
  std::int32_t block_offset = 0;  ///< begin of its block table in KvCompaction::block_tables
  std::int32_t entries = 0;
  std::int32_t kept = 0;  ///< < entries
};
constexpr std::int64_t numbers_of_compacted = 3;
static_assert(sizeof(CompactedSequence) == numbers_of_compacted * sizeof(std::int32_t));

/// Entries to be removed from the caches of sequences (AttentionOps::compact). Entry i of a
/// sequence is the (i % block_size)-th of block i / block_size of its table. Tensors are on the
/// device; the host knows the sequences' numbers. Valid during one call.
struct KvCompaction {
  std::span<const CompactedSequence> sequences = {};
  Tensor device_sequences = {};  ///< [sequences, 3] i32: the same; the CPU needs none
  /// [sum of blocks] i32, sequence after sequence, of the entries before.
  Tensor block_tables = {};
  std::int32_t block_size = 16;
  std::int64_t first_kept = 0;  ///< the first entries, which each sequence keeps
  std::int64_t last_kept = 0;   ///< the last entries, which each sequence keeps
  /// Of the entries between them those with the largest KvLayer::weights are kept, in each KV head
  /// for itself, the earlier one of equals; otherwise the last ones.
  bool by_weight = false;
  /// Weights are averaged over so many entries first, an odd number, of those between first_kept
  /// and last_kept; beyond their ends weights are 0 (Li et al. 2024, SnapKV, section 4.2).
  std::int64_t pooling = 1;
  /// Keys are turned back by as many positions as their entry moves (Su et al. 2021: a rotation by
  /// a difference of positions).
  bool turns_keys = false;
};

}  // namespace troupe
