#include "models/quantize/prune_layer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace troupe {
namespace {

using enum Parameter;

constexpr std::int64_t columns_at_once = 4;
constexpr std::int64_t zeros_of_them = 2;

HostTensor copy_of(const Tensor& tensor) {
  HostTensor copy(tensor.dtype(), tensor.shape());
  std::memcpy(copy->data(), tensor.data(), tensor.bytes());
  return copy;
}

/// What a weight of each column counts for its magnitude.
std::vector<float> column_norms(const InputStatistics* inputs, std::int64_t columns) {
  std::vector<float> norms(static_cast<std::size_t>(columns), 1.0F);
  if (inputs == nullptr) return norms;
  for (std::int64_t j = 0; j < columns; ++j) {
    norms[static_cast<std::size_t>(j)] = std::sqrt(inputs->product(j, j));
  }
  return norms;
}

/// The inputs that Wanda judges a matrix by; null: it is judged by magnitude.
const InputStatistics* judges(const QuantizationOptions& options, const InputObserver& inputs,
                              const LayerTensor& tensor) {
  const InputStatistics* const seen = inputs.inputs_of(tensor.name);
  const bool is_judge = options.method == QuantizationMethod::wanda && has_enough_inputs(seen);
  return is_judge ? seen : nullptr;
}

/// Sets the least of each four columns of a row to 0; of equal ones, the first.
void prune_groups(LayerTensor& tensor, std::span<const float> norms, ThreadPool& threads) {
  tensor.is_changed = true;
  threads.run([&](int member) {
    const Range range = split_evenly(tensor.rows(), member, threads.size());
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      for (std::int64_t first = 0; first < tensor.columns(); first += columns_at_once) {
        float* const weights = tensor.row(i) + first;
        std::array<std::int64_t, columns_at_once> order{};
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, {}, [&](std::int64_t j) {
          return std::abs(weights[j]) * norms[static_cast<std::size_t>(first + j)];
        });
        for (std::int64_t k = 0; k < zeros_of_them; ++k) {
          weights[order[static_cast<std::size_t>(k)]] = 0.0F;
        }
      }
    }
  });
}

/// The parameters of an MLP: what makes its channels, and what reads them.
struct Mlp {
  Parameter gate, up, down;
  std::int64_t expert = 0;
};

std::vector<Mlp> mlps_of(const ModelConfig& config) {
  std::vector<Mlp> mlps = {{.gate = gate, .up = up, .down = down},
                           {.gate = shared_gate, .up = shared_up, .down = shared_down}};
  const std::int64_t experts = config.moe ? config.moe->experts : 0;
  for (std::int64_t i = 0; i < experts; ++i) {
    mlps.push_back({.gate = expert_gate, .up = expert_up, .down = expert_down, .expert = i});
  }
  return mlps;
}

/// The channels that count least, in no order.
std::vector<std::int64_t> least_channels(const LayerTensor& down, std::span<const float> norms,
                                         double share) {
  std::vector<double> scores(norms.size());
  for (std::int64_t i = 0; i < down.rows(); ++i) {
    for (std::size_t j = 0; j < scores.size(); ++j) {
      const double weight = static_cast<double>(down.row(i)[j]) * static_cast<double>(norms[j]);
      scores[j] += weight * weight;
    }
  }
  std::vector<std::int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {},
                           [&](std::int64_t j) { return scores[static_cast<std::size_t>(j)]; });
  order.resize(static_cast<std::size_t>(share * static_cast<double>(order.size())));
  return order;
}

void clear_rows(const LayerTensors::Place& place, std::span<const std::int64_t> channels) {
  std::vector<std::int64_t> rows;
  for (const Slice slice : place.rows) {
    for (std::int64_t i = slice.begin; i < slice.end(); ++i) rows.push_back(i);
  }
  place.tensor->is_changed = true;
  for (const std::int64_t channel : channels) {
    float* const row = place.tensor->row(rows[static_cast<std::size_t>(channel)]);
    std::fill_n(row, place.tensor->columns(), 0.0F);
  }
}

/// Clears the channels of an MLP, if all its matrices are planned.
void prune_channels(const Mlp& mlp, const QuantizationPlan& plan,
                    const QuantizationOptions& options, LayerTensors& tensors,
                    const InputObserver& inputs) {
  const auto reader = tensors.find(mlp.down, mlp.expert);
  if (!reader || plan.find(reader->tensor->name) == nullptr) return;
  std::vector<LayerTensors::Place> makers;
  for (const Parameter parameter : {mlp.gate, mlp.up}) {
    if (const auto place = tensors.find(parameter, mlp.expert)) makers.push_back(*place);
  }
  const bool are_planned = std::ranges::all_of(
      makers, [&](const auto& place) { return plan.find(place.tensor->name) != nullptr; });
  if (makers.empty() || !are_planned) return;
  LayerTensor& down = *reader->tensor;
  const InputStatistics* const seen = judges(options, inputs, down);
  const auto norms = column_norms(seen, down.columns());
  const auto channels = least_channels(down, norms, options.sparsity);
  for (const LayerTensors::Place& place : makers) clear_rows(place, channels);
  down.is_changed = true;
  for (std::int64_t i = 0; i < down.rows(); ++i) {
    for (const std::int64_t channel : channels) down.row(i)[channel] = 0.0F;
  }
}

}  // namespace

QuantizedLayer prune_layer(const ModelConfig& config, const QuantizationPlan& plan,
                           const QuantizationOptions& options, LayerTensors& tensors,
                           const InputObserver& inputs, ThreadPool& threads) {
  std::map<std::string, HostTensor, std::less<>> before;
  for (const LayerTensor& tensor : tensors.all()) {
    if (plan.find(tensor.name) != nullptr) before.emplace(tensor.name, copy_of(tensor.values));
  }
  switch (std::get<SparsityStructure>(options.scheme)) {
    case SparsityStructure::rows:
      for (const Mlp& mlp : mlps_of(config)) prune_channels(mlp, plan, options, tensors, inputs);
      break;
    case SparsityStructure::two_of_four:
      for (LayerTensor& tensor : tensors.all()) {
        if (plan.find(tensor.name) == nullptr) continue;
        prune_groups(tensor, column_norms(judges(options, inputs, tensor), tensor.columns()),
                     threads);
      }
      break;
  }
  QuantizedLayer layer;
  for (const LayerTensor& tensor : tensors.all()) {
    if (!tensor.is_changed) continue;
    const InputStatistics* const seen = inputs.inputs_of(tensor.name);
    const RelativeError error = relative_error(
        before.at(tensor.name),
        [&](std::int64_t row, std::int64_t column) { return tensor.row(row)[column]; }, seen,
        threads);
    layer.figures.push_back({.name = tensor.name,
                             .method = judges(options, inputs, tensor) != nullptr
                                           ? QuantizationMethod::wanda
                                           : QuantizationMethod::magnitude,
                             .inputs = seen == nullptr ? 0 : seen->rows(),
                             .relative_error = error.value()});
    layer.error.error += error.error;
    layer.error.whole += error.whole;
  }
  return layer;
}

}  // namespace troupe
