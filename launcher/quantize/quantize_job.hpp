#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/cli/quantize_options.hpp"
#include "launcher/quantize/output_folder.hpp"
#include "models/checkpoint/checkpoint.hpp"
#include "models/checkpoint/shard_writer.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "models/ops/cpu/thread_pool.hpp"
#include "models/quantize/quantize_layer.hpp"
#include "models/quantize/run_layer.hpp"

namespace troupe {

/// Makes a quantised checkpoint, a shard for each layer and before them one for all else. What is
/// not quantised is copied byte by byte.
class QuantizeJob {
 public:
  /// Reads and checks everything that can be refused before anything is written. `options` outlive
  /// it.
  static Result<std::unique_ptr<QuantizeJob>> prepare(const QuantizeOptions& options);

  /// Begins the output, or goes on with it. Errors: those of OutputFolder::open: refusals.
  Result<void> open_output();
  /// Makes all shards and files. Errors: io, and those of layers.
  Result<void> run();
  /// Removes what is left of the work; the figures are gone then.
  Result<void> finish() { return output_->finish(); }

  const QuantizationPlan& plan() const { return plan_; }
  std::int64_t layers() const { return config_.layers; }
  std::int64_t windows() const { return text_.length > 0 ? text_.windows() : 0; }
  /// The record of a layer's shard: "layer", "seconds", "bytes_before", "bytes_after",
  /// "divergence", "matrices", "kept".
  const nlohmann::json& figures(std::int64_t layer) const { return *output_->finished(layer + 1); }
  std::uint64_t bytes_before() const { return bytes_before_; }
  std::uint64_t bytes_after() const { return bytes_after_; }

 private:
  explicit QuantizeJob(const QuantizeOptions& options)
      : options_(options), threads_(options.threads, true) {}

  using Clock = std::chrono::steady_clock;

  Result<void> sort_tensors();
  /// All that the shards depend on. Errors: io.
  Result<nlohmann::json> identity() const;
  bool is_calibrated() const { return !options_.calibrate.empty(); }
  Result<nlohmann::json> make_shard(std::int64_t shard);
  bool has_codes(const MatrixPlan& matrix) const;
  Result<nlohmann::json> prune_layer(std::int64_t layer);
  /// The ranges of a layer's matrices, if its codes depend on them; each is read for it once more,
  /// so that memory holds one at a time.
  Result<MatrixRanges> ranges_of(std::int64_t layer) const;
  Result<nlohmann::json> round_layer(std::int64_t layer);
  Result<nlohmann::json> calibrate_layer(std::int64_t layer);
  /// Finds the scales of a layer's KV cache; weights are copied.
  Result<nlohmann::json> calibrate_kv(std::int64_t layer);
  /// Runs a layer over the text with what has become of it; returns how far its output is from
  /// `whole`, the whole layer's.
  Result<double> run_quantized(std::int64_t layer, QuantizedLayer& made, LayerTensors& tensors,
                               const Tensor& whole);
  /// Writes a shard; `append(name)` appends the bytes of a tensor's codes and companions, or
  /// returns false for one that stays as it is. `added`: the bytes of added_specs.
  using AppendTensor = std::function<Result<bool>(const std::string& name, ShardWriter& writer)>;
  Result<void> write_shard(std::int64_t shard, const AppendTensor& append,
                           std::span<const std::byte> added = {});
  AppendTensor what_was_made(const QuantizedLayer& made, LayerTensors& tensors) const;
  std::vector<TensorSpec> specs_of(std::int64_t shard) const;
  /// Of the tensors that the input does not have: a layer's scales of the KV cache.
  std::vector<TensorSpec> added_specs(std::int64_t shard) const;
  Result<void> keep_worst_layers();
  void tell(std::int64_t shard, const nlohmann::json& figures) const;

  const QuantizeOptions& options_;
  ModelConfig config_;
  std::optional<Checkpoint> checkpoint_;
  QuantizationPlan plan_;
  CalibrationText text_;
  ThreadPool threads_;
  std::unique_ptr<Ops> ops_;
  std::optional<OutputFolder> output_;
  std::vector<std::vector<std::string>> tensors_;  // names of each shard
  std::vector<std::uint64_t> sizes_;               // of each shard's tensors in the input
  std::set<std::int64_t> kept_;                    // layers
  HostTensor hidden_, after_;                      // [tokens, hidden] f32: around a layer
  Clock::time_point began_;
  std::int64_t begun_with_ = 0;  // shards that were there
  std::uint64_t bytes_before_ = 0, bytes_after_ = 0;
};

}  // namespace troupe
