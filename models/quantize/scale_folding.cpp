#include "models/quantize/scale_folding.hpp"

#include <algorithm>

#include "models/quantize/code_grid.hpp"

namespace troupe {
namespace {

using enum Parameter;

/// Adds those of `parameters` that the layer has and that have as many columns as the source has
/// channels.
void add_readers(ScaleFold& fold, LayerTensors& tensors, std::int64_t channels,
                 std::initializer_list<Parameter> parameters, std::int64_t expert = 0) {
  for (const Parameter parameter : parameters) {
    const auto place = tensors.find(parameter, expert);
    if (place && place->tensor->columns() == channels) {
      fold.readers.push_back({parameter, expert});
    }
  }
}

void add_mlp_readers(ScaleFold& fold, LayerTensors& tensors, const ModelConfig& config,
                     std::int64_t channels) {
  add_readers(fold, tensors, channels, {gate, up, router, shared_gate, shared_up, shared_router});
  const std::int64_t experts = config.moe ? config.moe->experts : 0;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    add_readers(fold, tensors, channels, {expert_gate, expert_up}, expert);
  }
}

ScaleFold norm_fold(Parameter norm, Parameter bias, const ModelConfig& config) {
  ScaleFold fold{.source = norm, .adds_one = config.norm.adds_one};
  if (config.norm.has_bias) fold.bias = bias;
  return fold;
}

/// A fold from the rows of one matrix to the columns of another, if both are there.
void add_row_fold(std::vector<ScaleFold>& folds, LayerTensors& tensors, Parameter source,
                  Parameter bias, Parameter reader, std::int64_t expert) {
  const auto from = tensors.find(source, expert), to = tensors.find(reader, expert);
  if (!from || !to) return;
  ScaleFold fold{.source = source, .bias = bias, .expert = expert, .is_norm = false};
  fold.readers.push_back({reader, expert});
  folds.push_back(std::move(fold));
}

/// True if the layer's experts are in tensors that can be scaled.
bool knows_experts(const ModelConfig& config, LayerTensors& tensors) {
  return !config.moe || !tensors.find(router) || tensors.find(expert_up);
}

}  // namespace

std::vector<ScaleFold> folds_of(const ModelConfig& config, LayerTensors& tensors, bool with_rows) {
  std::vector<ScaleFold> folds;
  const auto attention = tensors.find(attention_norm), mlp = tensors.find(mlp_norm);
  const bool shares_norm = config.form.parallel && !mlp;
  const bool has_all_readers = knows_experts(config, tensors);
  if (config.form.pre_norms && attention && (!shares_norm || has_all_readers)) {
    const std::int64_t channels = attention->tensor->rows();
    ScaleFold fold = norm_fold(attention_norm, attention_norm_bias, config);
    add_readers(fold, tensors, channels,
                {query, key, value, query_down, latent_down, index_key, index_weights});
    if (shares_norm) add_mlp_readers(fold, tensors, config, channels);
    folds.push_back(std::move(fold));
  }
  if (config.form.pre_norms && mlp && has_all_readers) {
    ScaleFold fold = norm_fold(mlp_norm, mlp_norm_bias, config);
    add_mlp_readers(fold, tensors, config, mlp->tensor->rows());
    folds.push_back(std::move(fold));
  }
  if (!with_rows) return folds;
  if (!config.latent) {
    add_row_fold(folds, tensors, value, value_bias, output, 0);
    if (!folds.empty() && folds.back().source == value) {
      folds.back().copies = config.heads / config.kv_heads;
      folds.back().head_dim = config.head_dim;
    }
  }
  const bool is_linear_in_up = config.activation == Activation::silu_gated ||
                               config.activation == Activation::gelu_tanh_gated;
  if (!is_linear_in_up) return folds;
  add_row_fold(folds, tensors, up, up_bias, down, 0);
  add_row_fold(folds, tensors, shared_up, shared_up, shared_down, 0);
  const std::int64_t experts = config.moe ? config.moe->experts : 0;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    add_row_fold(folds, tensors, expert_up, expert_up_bias, expert_down, expert);
  }
  return folds;
}

std::vector<float> spread(const ScaleFold& fold, std::span<const float> of_source) {
  if (fold.copies == 1) return {of_source.begin(), of_source.end()};
  std::vector<float> of_columns;
  const auto dim = static_cast<std::size_t>(fold.head_dim);
  for (std::size_t first = 0; first < of_source.size(); first += dim) {
    for (std::int64_t copy = 0; copy < fold.copies; ++copy) {
      const auto head = of_source.subspan(first, dim);
      of_columns.insert(of_columns.end(), head.begin(), head.end());
    }
  }
  return of_columns;
}

namespace {

void scale_source(const ScaleFold& fold, LayerTensors& tensors, std::vector<float>& scales) {
  const auto source = tensors.find(fold.source, fold.expert);
  source->tensor->is_changed = true;
  std::size_t channel = 0;
  for (const Slice rows : source->rows) {
    for (std::int64_t i = rows.begin; i < rows.end(); ++i, ++channel) {
      float* const row = source->tensor->row(i);
      float& scale = scales[channel];
      if (!fold.is_norm) {
        for (std::int64_t j = 0; j < source->tensor->columns(); ++j) row[j] /= scale;
        continue;
      }
      const float one = fold.adds_one ? 1.0F : 0.0F;
      const float before = row[0] + one;
      const float stored = rounded_to(before / scale - one, source->tensor->dtype);
      const bool is_sound = before != 0.0F && stored + one != 0.0F;
      scale = is_sound ? before / (stored + one) : 1.0F;
      if (is_sound) row[0] = stored;
    }
  }
}

}  // namespace

void apply_fold(const ScaleFold& fold, LayerTensors& tensors, std::vector<float>& scales,
                ThreadPool& threads) {
  scale_source(fold, tensors, scales);
  if (fold.bias && *fold.bias != fold.source) {
    if (const auto bias = tensors.find(*fold.bias, fold.expert)) {
      bias->tensor->is_changed = true;
      std::size_t channel = 0;
      for (const Slice rows : bias->rows) {
        for (std::int64_t i = rows.begin; i < rows.end(); ++i) {
          *bias->tensor->row(i) /= scales[channel++];
        }
      }
    }
  }
  const std::vector<float> of_columns = spread(fold, scales);
  std::vector<const LayerTensor*> done;
  for (const ScaleFold::Reader& reader : fold.readers) {
    LayerTensor& tensor = *tensors.find(reader.parameter, reader.expert)->tensor;
    if (std::ranges::find(done, &tensor) != done.end()) continue;
    done.push_back(&tensor);
    tensor.is_changed = true;
    threads.run([&](int member) {
      const Range range = split_evenly(tensor.rows(), member, threads.size());
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        float* const row = tensor.row(i);
        for (std::int64_t j = 0; j < tensor.columns(); ++j) {
          row[j] *= of_columns[static_cast<std::size_t>(j)];
        }
      }
    });
  }
}

}  // namespace troupe
