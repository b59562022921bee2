#include "models/quantize/run_layer.hpp"

#include <algorithm>
#include <cstring>

#include "models/layers/attention/cache_spec.hpp"
#include "models/model/decoder_model.hpp"
#include "parallel/collectives/self_collectives.hpp"

namespace troupe {
namespace {

constexpr std::int64_t tokens_at_once = 2048;
constexpr std::int32_t block_size = 16;

/// Stands for the stages before and after a layer's: gives it its input, and takes its output.
class NeighbourStages final : public SelfCollectives {
 public:
  void set(const Tensor& input, const Tensor& output) {
    input_ = input;
    output_ = output;
  }
  Result<void> send(const Tensor& tensor, int /*to*/) override {
    std::memcpy(output_.data(), tensor.data(), tensor.bytes());
    return {};
  }
  Result<void> receive(const Tensor& tensor, int /*from*/) override {
    std::memcpy(tensor.data(), input_.data(), tensor.bytes());
    return {};
  }

 private:
  Tensor input_, output_;
};

/// The inputs of a pass of some whole windows.
class WindowBatch {
 public:
  WindowBatch(const CalibrationText& text, std::int64_t most_windows, std::size_t cache_groups)
      : text_(text), groups_(cache_groups) {
    const std::int64_t length = text.length, rows = most_windows * length;
    const std::int64_t blocks = (length + block_size - 1) / block_size;
    ids_ = HostTensor(DType::i32, {rows});
    positions_ = HostTensor(DType::i32, {rows});
    slots_ = HostTensor(DType::i32, {rows});
    table_ = HostTensor(DType::i32, {most_windows * blocks});
    for (std::int64_t i = 0; i < most_windows * blocks; ++i) {
      table_->as<std::int32_t>()[i] = static_cast<std::int32_t>(i);
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t position = row % length;
      positions_->as<std::int32_t>()[row] = static_cast<std::int32_t>(position);
      slots_->as<std::int32_t>()[row] =
          static_cast<std::int32_t>(row / length * blocks * block_size + position);
    }
  }

  std::int64_t blocks() const { return table_->elements(); }

  ForwardBatch take(std::int64_t first_window, std::int64_t windows) {
    const std::int64_t rows = windows * text_.length;
    std::copy_n(text_.tokens.data() + first_window * text_.length, rows, ids_->as<std::int32_t>());
    spans_.clear();
    const auto blocks = static_cast<std::int32_t>((text_.length + block_size - 1) / block_size);
    for (std::int32_t i = 0; i < windows; ++i) {
      spans_.push_back({static_cast<std::int32_t>(i * text_.length),
                        static_cast<std::int32_t>(text_.length), 0, i * blocks});
    }
    AttentionBatch attention;
    attention.positions = positions_.view().rows(0, rows);
    attention.kv_slots = slots_.view().rows(0, rows);
    attention.block_tables = table_.view().rows(0, windows * blocks);
    attention.sequences = spans_;
    attention.block_size = block_size;
    attention_.assign(groups_, attention);
    ForwardBatch batch;
    batch.token_ids = ids_.view().rows(0, rows);
    batch.attention = attention_;
    return batch;
  }

 private:
  const CalibrationText& text_;
  std::size_t groups_;
  HostTensor ids_, positions_, slots_, table_;
  std::vector<SequenceSpan> spans_;
  std::vector<AttentionBatch> attention_;
};

/// The config with one more layer, so that none of its own is a pipeline's last, which has the
/// head.
ModelConfig with_a_layer_after(ModelConfig config) {
  ++config.layers;
  if (!config.windows.empty()) config.windows.push_back(config.windows.back());
  return config;
}

}  // namespace

Result<void> run_layer(const ModelConfig& config, const Checkpoint& checkpoint, Ops& ops,
                       std::int64_t layer, const CalibrationText& text, const Tensor& input,
                       const Tensor& output, const OnKvCache& on_cache) {
  const ModelConfig longer = with_a_layer_after(config);
  const std::int64_t at_once =
      std::clamp<std::int64_t>(tokens_at_once / text.length, 1, text.windows());
  TROUPE_TRY(const Mesh mesh, Mesh::create({.pipeline = static_cast<int>(longer.layers)}));
  NeighbourStages neighbours;
  ParallelContext parallel{.mesh = mesh, .rank = static_cast<int>(layer)};
  parallel.pipeline = RankGroup(&neighbours);
  const ModelLimits limits{.max_batch_tokens = at_once * text.length,
                           .max_head_rows = 1,
                           .max_positions = text.length,
                           .block_size = block_size};
  TROUPE_TRY(const auto model,
             DecoderModel::load(longer, checkpoint, ops, parallel, limits, nullptr));
  WindowBatch batch(text, at_once, cache_groups(longer).size());
  TROUPE_CHECK(model->allocate_kv_cache(batch.blocks()));
  for (std::int64_t first = 0; first < text.windows(); first += at_once) {
    const std::int64_t windows = std::min(at_once, text.windows() - first);
    const std::int64_t begin = first * text.length, rows = windows * text.length;
    neighbours.set(layer == 0 ? Tensor() : input.rows(begin, rows), output.rows(begin, rows));
    TROUPE_CHECK(model->forward(batch.take(first, windows), {}));
    if (on_cache) on_cache(model->kv_layers().front());
  }
  return {};
}

}  // namespace troupe
