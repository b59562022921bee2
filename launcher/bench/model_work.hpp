#pragma once

#include <cstdint>
#include <span>

#include "launcher/bench/bench_client.hpp"
#include "models/config/model_config.hpp"

namespace troupe {

/// What a model's tokens cost, from its sizes alone: multiply-adds of matrices as two operations
/// each, and bytes of weights and KV that must come from memory. Norms, activations and rotations
/// are left out: they are below a hundredth.
class ModelWork {
 public:
  /// `weight_bytes` and `kv_bytes`: of one number, as they lie in memory.
  ModelWork(const ModelConfig& model, double weight_bytes, double kv_bytes);

  /// Operations to compute the tokens of these answers, without what the prefix cache spared:
  /// `computed_prompt_tokens` of their prompts were computed.
  double operations(std::span<const Outcome> outcomes, double computed_prompt_tokens) const;

  /// Bytes that `steps` steps of one replica over `tokens` tokens must read at least, for these
  /// answers: every matrix once a step, of experts as many as are met when tokens choose evenly,
  /// and for each generated token the KV of those before it.
  double bytes(std::span<const Outcome> outcomes, double tokens, double steps) const;

  /// Numbers in the matrices that a token meets, without embedding and head; of k of its experts.
  double parameters_per_token() const { return dense_parameters_ + chosen_parameters_; }

 private:
  double dense_parameters_ = 0;   ///< every token meets them
  double chosen_parameters_ = 0;  ///< the experts of one token
  double expert_parameters_ = 0;  ///< all experts
  double head_parameters_ = 0;
  double choice_share_ = 1;          ///< experts of a token / experts
  double attention_operations_ = 0;  ///< of one token for each token before it
  double kv_numbers_ = 0;            ///< of one token
  double weight_bytes_ = 0;
  double kv_bytes_ = 0;
};

}  // namespace troupe
