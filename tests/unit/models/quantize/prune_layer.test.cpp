#include "models/quantize/prune_layer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "models/families/family.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "models/quantize/observing_ops.hpp"
#include "models/quantize/run_layer.hpp"
#include "tests/support/require.hpp"
#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

constexpr std::int64_t layer = 1;
constexpr std::int64_t windows = 20, window_length = 24;

/// A layer of a small model, and the inputs of its matrices on some tokens.
class PruneLayer : public testing::Test {
 protected:
  void open(const std::string& name) {
    const auto folder = test::source_path("tests/data/golden") / name;
    REQUIRE_OK(config_, load_model_config(folder));
    REQUIRE_OK(Checkpoint checkpoint, Checkpoint::open(folder));
    REQUIRE_OK(plan_, plan_quantization(config_, checkpoint, options_));
    std::map<std::string, std::int64_t, std::less<>> columns;
    for (const auto& [matrix, planned] : plan_.matrices) {
      if (planned.layer == layer) columns.emplace(matrix, planned.shape[1]);
    }
    observer_.emplace(std::move(columns), threads_);
    observe(checkpoint);
    REQUIRE_OK(before_, LayerTensors::load(config_, checkpoint, layer));
    REQUIRE_OK(after_, LayerTensors::load(config_, checkpoint, layer));
  }

  QuantizedLayer prune() {
    return prune_layer(config_, plan_, options_, after_, *observer_, threads_);
  }

  QuantizationOptions options_;
  ModelConfig config_;
  QuantizationPlan plan_;
  ThreadPool threads_{2};
  std::optional<InputObserver> observer_;
  LayerTensors before_, after_;

 private:
  void observe(Checkpoint& checkpoint) {
    CalibrationText text{.tokens = {}, .length = window_length};
    for (std::int32_t i = 0; i < windows * window_length; ++i) {
      text.tokens.push_back((i * i * 37 + 11) % static_cast<std::int32_t>(config_.vocab_size));
    }
    REQUIRE_OK(const auto ops, make_cpu_ops({}));
    const HostTensor first(DType::f32, {std::ssize(text.tokens), config_.hidden_size});
    const HostTensor second(DType::f32, first->shape());
    ASSERT_TRUE(run_layer(config_, checkpoint, *ops, 0, text, first, first).ok());
    checkpoint.set_substitute([&](std::string_view name) {
      observer_->on_read(name);
      return std::optional<Tensor>();
    });
    ObservingOps observing(*ops, *observer_);
    ASSERT_TRUE(run_layer(config_, checkpoint, observing, layer, text, first, second).ok());
    checkpoint.set_substitute(nullptr);
  }
};

TEST_F(PruneLayer, clears_the_two_smallest_of_each_four) {
  options_.scheme = SparsityStructure::two_of_four;
  options_.method = QuantizationMethod::magnitude;
  open("llama-a");
  prune();
  for (LayerTensor& was : before_.all()) {
    SCOPED_TRACE(was.name);
    const LayerTensor* const is = after_.find(was.name);
    EXPECT_EQ(is->is_changed, plan_.find(was.name) != nullptr);
    if (!is->is_changed) continue;
    for (std::int64_t i = 0; i < was.rows(); ++i) {
      for (std::int64_t first = 0; first < was.columns(); first += 4) {
        std::vector<float> magnitudes;
        for (std::int64_t j = first; j < first + 4; ++j) {
          magnitudes.push_back(std::abs(was.row(i)[j]));
        }
        std::ranges::sort(magnitudes);
        int zeros = 0;
        for (std::int64_t j = first; j < first + 4; ++j) {
          const float left = is->row(i)[j];
          zeros += left == 0.0F ? 1 : 0;
          if (left == 0.0F) {
            ASSERT_LE(std::abs(was.row(i)[j]), magnitudes[2]);
          } else {
            ASSERT_EQ(left, was.row(i)[j]);
          }
        }
        ASSERT_GE(zeros, 2);
      }
    }
  }
}

TEST_F(PruneLayer, loses_less_where_inputs_are_known) {
  std::array<double, 2> lost{};
  for (const bool knows : {false, true}) {
    options_.scheme = SparsityStructure::two_of_four;
    options_.method = knows ? QuantizationMethod::wanda : QuantizationMethod::magnitude;
    open("llama-a");
    const QuantizedLayer made = prune();
    lost[knows ? 1 : 0] = made.error.value();
    for (const MatrixFigures& figures : made.figures) {
      EXPECT_EQ(figures.method, options_.method) << figures.name;
      EXPECT_GT(figures.inputs, 0) << figures.name;
    }
  }
  EXPECT_LT(lost[1], lost[0]);
  EXPECT_GT(lost[1], 0.0);
}

/// The columns of `down` that are all 0.
std::vector<std::int64_t> empty_columns(const LayerTensor& down) {
  std::vector<std::int64_t> columns;
  for (std::int64_t j = 0; j < down.columns(); ++j) {
    bool is_empty = true;
    for (std::int64_t i = 0; i < down.rows(); ++i) is_empty = is_empty && down.row(i)[j] == 0.0F;
    if (is_empty) columns.push_back(j);
  }
  return columns;
}

TEST_F(PruneLayer, removes_whole_channels_of_each_mlp) {
  options_.scheme = SparsityStructure::rows;
  options_.method = QuantizationMethod::magnitude;
  options_.sparsity = 0.3;
  for (const std::string model : {"llama-a", "mixtral-a", "qwen3moe-a", "phi3-a", "starcoder2-a"}) {
    SCOPED_TRACE(model);
    open(model);
    prune();
    const bool has_experts = after_.find(Parameter::expert_down, 0).has_value();
    const std::int64_t mlps = has_experts ? config_.moe->experts : 1;
    for (std::int64_t expert = 0; expert < mlps; ++expert) {
      const auto down = after_.find(has_experts ? Parameter::expert_down : Parameter::down, expert);
      ASSERT_TRUE(down.has_value());
      const auto channels = empty_columns(*down->tensor);
      EXPECT_EQ(std::ssize(channels),
                static_cast<std::int64_t>(0.3 * static_cast<double>(down->tensor->columns())));
      for (const Parameter maker : {has_experts ? Parameter::expert_gate : Parameter::gate,
                                    has_experts ? Parameter::expert_up : Parameter::up}) {
        const auto place = after_.find(maker, expert);
        if (!place) continue;  // an MLP of two matrices has no gate
        for (const std::int64_t channel : channels) {
          const float* const row = place->tensor->row(place->rows.front().begin + channel);
          EXPECT_TRUE(std::all_of(row, row + place->tensor->columns(),
                                  [](float weight) { return weight == 0.0F; }));
        }
      }
    }
  }
}

}  // namespace
}  // namespace troupe
