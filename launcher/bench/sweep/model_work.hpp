#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "launcher/bench/throughput/bench_client.hpp"
#include "launcher/bench/throughput/step_tally.hpp"
#include "models/config/model_config.hpp"

namespace troupe {

/// What a model's tokens cost, from its sizes alone: multiply-adds of matrices as two operations
/// each, and bytes of weights and KV that must come from memory. Norms, activations and rotations
/// are left out: they are below a hundredth.
class ModelWork {
 public:
  /// `weight_bytes` and `kv_bytes`: of one number, as they lie in memory. `copies`: of each matrix
  /// but those of experts, how many a step reads: one for each replica of a step domain, and for
  /// each rank of a context group.
  ModelWork(const ModelConfig& model, double weight_bytes, double kv_bytes, double copies = 1);

  /// Operations to compute the tokens of these answers. Of all their prompts
  /// `computed_prompt_tokens` were computed: fewer than there are where the prefix cache had the
  /// beginnings, more where choices or preemptions computed them again. Attention counts what a
  /// layer's window lets a token see. Choices of one request count as equally long.
  double operations(std::span<const Outcome> outcomes, double computed_prompt_tokens) const;

  /// Bytes that `steps` must read at least for these answers: every matrix once a step, the head
  /// only where tokens are sampled, of experts as many as are met when the step's tokens choose
  /// evenly; and for each generated token but the first of a choice, which is the prompt's, the KV
  /// that it sees of those before it.
  double bytes(std::span<const Outcome> outcomes, const StepTally& steps) const;

  /// Numbers in the matrices that a token meets, without embedding and head; of k of its experts.
  double parameters_per_token() const { return dense_parameters_ + chosen_parameters_; }

 private:
  /// Tokens that those at positions [from, to) see, themselves included, summed over the layers.
  double seen(double from, double to) const;

  std::map<std::int64_t, double> windows_;  ///< of layers, how many there are with it; 0: no window
  double layers_ = 0;
  double dense_parameters_ = 0;   ///< every token meets them
  double chosen_parameters_ = 0;  ///< the experts of one token
  double expert_parameters_ = 0;  ///< all experts
  double head_parameters_ = 0;
  double choice_share_ = 1;     ///< experts of a token / experts
  double pair_operations_ = 0;  ///< of a layer's attention, for a token and one that it sees
  double kv_numbers_ = 0;       ///< of one token in one layer
  double weight_bytes_ = 0;
  double kv_bytes_ = 0;
  double copies_ = 1;
};

}  // namespace troupe
