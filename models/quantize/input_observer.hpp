#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/ops/linear.hpp"
#include "models/ops/moe_ops.hpp"
#include "models/ops/stored_matrix.hpp"
#include "models/quantize/input_statistics.hpp"

namespace troupe {

/// Learns which of a layer's matrices have which inputs, while the layer is built and run on
/// ObservingOps. A matrix is known by the tensor that was read for it: names that are read before
/// Ops makes a Linear are in it. One thread at a time.
class InputObserver {
 public:
  /// `columns`: of each matrix of interest, by its tensor's name.
  InputObserver(std::map<std::string, std::int64_t, std::less<>> columns, ThreadPool& threads)
      : columns_(std::move(columns)), threads_(threads) {}

  /// Called for each tensor that a layer reads.
  void on_read(std::string_view name);
  /// Called when Ops has made a matrix of what was read since the last one.
  void on_made(const Linear& linear);
  void on_made(const GroupedLinear& grouped);
  /// Called with the inputs of a product: x [rows, k] f32.
  void on_input(const Linear& linear, const Tensor& x);
  /// See MoeOps::grouped_linear.
  void on_input(const GroupedLinear& grouped, const Tensor& x, const ExpertBatch& batch,
                std::int64_t top_k, bool gather);

  /// The inputs of a matrix; null if none were seen. Matrices with the same inputs share them.
  InputStatistics* inputs_of(std::string_view name) const;

 private:
  std::shared_ptr<InputStatistics> observe(std::span<const std::string> names,
                                           std::int64_t columns);

  std::map<std::string, std::int64_t, std::less<>> columns_;
  ThreadPool& threads_;
  std::vector<std::string> read_;  // since the last matrix was made
  std::map<const Linear*, std::shared_ptr<InputStatistics>> of_linear_;
  std::map<const GroupedLinear*, std::vector<std::shared_ptr<InputStatistics>>> of_experts_;
  std::map<std::string, std::shared_ptr<InputStatistics>, std::less<>> of_name_;
};

}  // namespace troupe
