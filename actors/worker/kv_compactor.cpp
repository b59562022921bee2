#include "actors/worker/kv_compactor.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

Result<KvCompactor> KvCompactor::create(Ops& ops, const ModelLimits& limits,
                                        std::int64_t kv_blocks) {
  KvCompactor compactor(ops);
  // Each sequence of a step has a row of it.
  const Shape shape{kv_blocks + numbers_of_compacted * limits.max_batch_tokens};
  TROUPE_TRY(compactor.numbers_, ops.memory().allocate(DType::i32, shape));
  for (Staging& staging : compactor.staging_) {
    TROUPE_TRY(staging.numbers, ops.memory().allocate_host(DType::i32, shape));
  }
  return compactor;
}

Result<void> KvCompactor::compact(Model& model, std::span<const SequenceCompaction> compactions) {
  if (compactions.empty()) return {};
  Staging& staging = staging_[turn_++ % staging_.size()];
  if (staging.used) TROUPE_CHECK(ops_->stream().wait(staging.copied));
  sequences_.clear();
  auto* next = staging.numbers->as<std::int32_t>();
  std::int32_t blocks = 0;
  for (const SequenceCompaction& compaction : compactions) {
    sequences_.push_back({blocks, compaction.entries, compaction.kept});
    next = std::ranges::copy(compaction.table, next).out;
    blocks += static_cast<std::int32_t>(compaction.table.size());
  }
  for (const CompactedSequence& sequence : sequences_) {
    next =
        std::ranges::copy(std::array{sequence.block_offset, sequence.entries, sequence.kept}, next)
            .out;
  }
  const auto sequences = static_cast<std::int64_t>(sequences_.size());
  const std::int64_t numbers = blocks + numbers_of_compacted * sequences;
  ops_->memory().upload(staging.numbers->rows(0, numbers), numbers_->rows(0, numbers));
  staging.copied = ops_->stream().record_event();
  staging.used = true;
  model.compact_kv(sequences_, numbers_->rows(0, blocks),
                   numbers_->rows(blocks, numbers_of_compacted * sequences)
                       .reshaped({sequences, numbers_of_compacted}));
  return {};
}

}  // namespace troupe
