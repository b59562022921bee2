#pragma once

#include <memory>
#include <optional>

#include "models/config/model_config.hpp"
#include "models/layers/model_limits.hpp"
#include "models/layers/parallel/parallel_context.hpp"
#include "models/ops/ops.hpp"
#include "parallel/collectives/device_expert_exchange.hpp"
#include "parallel/experts/expert_exchange.hpp"
#include "parallel/experts/expert_share.hpp"

namespace troupe {

/// How a model's tokens reach its experts, which are on several ranks:
/// - All tensor ranks have all rows anyway, and together hold all experts: each computes its
///   experts' outputs, and the sum over the ranks is that of any block (TensorParallelMoe). Used
///   with expert_parallel_size 1, and up to the tensor size if sums are rounded anyway.
/// - The devices' kernels exchange rows, if they can access each other's memory and sums are
///   rounded anyway (DeviceDispatchMoe, bf16).
/// - Collectives exchange a row for each (token, expert) assignment, planned on the host and
///   added in one order at every size (HostDispatchMoe).
class ExpertGroup {
 public:
  /// Called by all ranks of parallel.experts. check_weights must have passed. Errors: those of
  /// Collectives; resource_exhausted.
  static Result<ExpertGroup> create(const ModelConfig& config, const ModelLimits& limits,
                                    const ParallelContext& parallel, Ops& ops);

  /// This rank's experts, and its part of each.
  const ExpertShare& share() const { return share_; }
  DeviceExpertExchange* device_exchange() const { return device_exchange_.get(); }  ///< or null
  ExpertExchange* host_exchange() {
    return host_exchange_ ? &*host_exchange_ : nullptr;
  }  ///< or null
  const ExpertExchange* host_exchange() const {
    return host_exchange_ ? &*host_exchange_ : nullptr;
  }
  bool exchanges() const { return device_exchange_ != nullptr || host_exchange_.has_value(); }

 private:
  ExpertShare share_;
  std::unique_ptr<DeviceExpertExchange> device_exchange_;
  std::optional<ExpertExchange> host_exchange_;
};

}  // namespace troupe
