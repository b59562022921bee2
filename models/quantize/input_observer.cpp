#include "models/quantize/input_observer.hpp"

#include <utility>

namespace troupe {

void InputObserver::on_read(std::string_view name) {
  if (columns_.contains(name)) read_.emplace_back(name);
}

std::shared_ptr<InputStatistics> InputObserver::observe(std::span<const std::string> names,
                                                        std::int64_t columns) {
  std::shared_ptr<InputStatistics> inputs;
  for (const std::string& name : names) {
    if (columns_.at(name) != columns) continue;  // rearranged: these are not its inputs
    if (inputs == nullptr) inputs = std::make_shared<InputStatistics>(columns);
    of_name_[name] = inputs;
  }
  return inputs;
}

void InputObserver::on_made(const Linear& linear) {
  const std::vector<std::string> names = std::exchange(read_, {});
  if (auto inputs = observe(names, linear.in_features())) of_linear_[&linear] = std::move(inputs);
}

void InputObserver::on_made(const GroupedLinear& grouped) {
  const std::vector<std::string> names = std::exchange(read_, {});
  const auto experts = static_cast<std::size_t>(grouped.experts());
  if (names.empty() || names.size() % experts != 0) return;
  const std::size_t each = names.size() / experts;
  std::vector<std::shared_ptr<InputStatistics>> inputs;
  for (std::size_t expert = 0; expert < experts; ++expert) {
    inputs.push_back(observe(std::span(names).subspan(expert * each, each), grouped.in_features()));
  }
  of_experts_[&grouped] = std::move(inputs);
}

void InputObserver::on_input(const Linear& linear, const Tensor& x) {
  const auto found = of_linear_.find(&linear);
  if (found == of_linear_.end()) return;
  std::vector<const float*> rows;
  for (std::int64_t row = 0; row < x[0]; ++row) rows.push_back(x.as<float>() + row * x[1]);
  found->second->add(rows, threads_);
}

void InputObserver::on_input(const GroupedLinear& grouped, const Tensor& x,
                             const ExpertBatch& batch, std::int64_t top_k, bool gather) {
  const auto found = of_experts_.find(&grouped);
  if (found == of_experts_.end()) return;
  const std::int32_t* const offsets = batch.offsets.as<std::int32_t>();
  const std::int32_t* const source = batch.source.as<std::int32_t>();
  for (std::size_t expert = 0; expert < found->second.size(); ++expert) {
    const std::shared_ptr<InputStatistics>& inputs = found->second[expert];
    if (inputs == nullptr) continue;
    std::vector<const float*> rows;
    for (std::int32_t i = offsets[expert]; i < offsets[expert + 1]; ++i) {
      const std::int64_t row = gather ? source[i] / top_k : i;
      rows.push_back(x.as<float>() + row * grouped.in_features());
    }
    inputs->add(rows, threads_);
  }
}

InputStatistics* InputObserver::inputs_of(std::string_view name) const {
  const auto found = of_name_.find(name);
  if (found == of_name_.end() || found->second->rows() == 0) return nullptr;
  return found->second.get();
}

}  // namespace troupe
