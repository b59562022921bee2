#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "models/model/model.hpp"
#include "models/ops/ops.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// A sequence whose cache loses entries (KvPolicy).
struct SequenceCompaction {
  std::vector<std::int32_t> table;  ///< its blocks, of all entries before
  std::int32_t entries = 0;
  std::int32_t kept = 0;
};

/// Gives a step's compactions to the model, with the memory that the device reads them from. One
/// thread at a time.
class KvCompactor {
 public:
  /// For a model whose cache has `kv_blocks` blocks, which sequences do not share. Errors:
  /// resource_exhausted.
  static Result<KvCompactor> create(Ops& ops, const ModelLimits& limits, std::int64_t kv_blocks);

  /// Enqueues the compactions. Errors: those of the device.
  Result<void> compact(Model& model, std::span<const SequenceCompaction> compactions);

 private:
  explicit KvCompactor(Ops& ops) : ops_(&ops) {}

  /// Not rewritten before the device has copied it.
  struct Staging {
    DeviceTensor numbers;
    StreamOps::DeviceEvent copied = 0;
    bool used = false;
  };

  Ops* ops_;
  DeviceTensor numbers_;  ///< [numbers of sequences + blocks of a step at most] i32
  std::array<Staging, 2> staging_;
  std::size_t turn_ = 0;
  std::vector<CompactedSequence> sequences_;
};

}  // namespace troupe
