#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/layers/attention/cache_spec.hpp"
#include "models/layers/parallel/context_split.hpp"
#include "models/model/model.hpp"
#include "models/ops/ops.hpp"

namespace troupe::golden {

/// Rows of a pass that takes any golden prompt at once.
inline constexpr std::int32_t whole = 512;

/// A sequence in the tests: its known tokens, and how many of them are in the cache.
struct Sequence {
  std::vector<std::int32_t> tokens;
  std::int32_t computed = 0;
  /// For each group of cache_groups; -1 for a block that left the group's window.
  std::vector<std::vector<std::int32_t>> tables = {};
};

/// A sequence's part of a pass: its next `rows` tokens, with logits for the last `logit_rows`.
struct Share {
  Sequence* sequence = nullptr;
  std::int32_t rows = 0;
  std::int32_t logit_rows = 0;
};

/// Runs sequences through a model. Released blocks are allocated last in, first out, so that a
/// sequence's blocks are seldom in order and a wrong block table shows. Blocks that leave a window
/// are released at once.
class Runner {
 public:
  /// Passes with enough rows are divided over `context_ranks`.
  static Result<std::unique_ptr<Runner>> create(Ops& ops, Model& model, std::int64_t blocks,
                                                int context_ranks = 1);

  /// Runs one pass; `computed` advances. The logits [sum of logit_rows, vocab] f32 are valid until
  /// the next pass.
  Result<Tensor> pass(std::span<const Share> shares);

  /// Runs a pass of other replicas, for which this one has no tokens.
  Result<void> empty_pass();

  /// Tells the ranks of `dense`, which outlives the runner, the rows of each pass and learns
  /// theirs, for replicas of `tensor_ranks` ranks that share dense layers
  /// (data_parallel_attention).
  void share_dense_layers(Collectives& dense, int tensor_ranks) {
    dense_ = &dense;
    tensor_ranks_ = tensor_ranks;
  }
  bool shares_dense_layers() const { return dense_ != nullptr; }

  /// Feeds all unknown tokens of one sequence, at most `chunk` a pass, and appends the logits of
  /// every row to `logits`.
  Result<void> feed(Sequence& sequence, std::int32_t chunk, std::vector<float>& logits);

  /// Releases the sequence's blocks; it is as if nothing of it had been computed.
  void release(Sequence& sequence);

  const ModelConfig& config() const { return model_.config(); }

 private:
  Runner(Ops& ops, Model& model, std::int64_t blocks, int context_ranks)
      : ops_(ops),
        model_(model),
        blocks_(blocks),
        context_ranks_(context_ranks),
        groups_(cache_groups(model.config())) {}
  Result<void> allocate();
  Result<void> reserve(Sequence& sequence, std::int32_t tokens);
  void drop_what_left_windows(Sequence& sequence);
  /// Places the tokens in the cache of one group, on the device, in the order of `split` if any.
  AttentionBatch place(std::span<const Share> shares, std::size_t group, const Tensor& positions,
                       std::vector<SequenceSpan>& spans, const std::optional<ContextSplit>& split);
  Tensor upload(const std::vector<std::int32_t>& values, const Tensor& device);
  /// Sets batch.replicas, if they share dense layers.
  Result<void> tell_rows(ForwardBatch& batch);

  Ops& ops_;
  Model& model_;
  std::int64_t blocks_;
  int context_ranks_;
  Collectives* dense_ = nullptr;
  int tensor_ranks_ = 1;
  std::vector<ReplicaRows> replicas_;
  std::vector<CacheSpec> groups_;
  std::vector<std::int32_t> free_;
  DeviceTensor token_ids_;
  DeviceTensor positions_;
  std::vector<DeviceTensor> slots_;       // of each group
  std::vector<DeviceTensor> tables_;      // of each group
  std::vector<DeviceTensor> spans_;       // of each group
  std::vector<DeviceTensor> head_spans_;  // of each group
  DeviceTensor head_positions_;
  DeviceTensor head_rows_;
  DeviceTensor logits_;
  HostTensor host_logits_;
};

/// Returns the index of the largest of `logits`; the lower one of equals.
std::int32_t argmax(std::span<const float> logits);

/// Natural log-probabilities, computed in double.
std::vector<double> log_softmax(std::span<const float> logits);

}  // namespace troupe::golden
