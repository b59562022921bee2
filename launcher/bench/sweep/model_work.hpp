#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "launcher/bench/throughput/bench_client.hpp"
#include "launcher/bench/throughput/step_tally.hpp"
#include "models/config/model_config.hpp"

namespace troupe {

/// The cost of a model's tokens, from its sizes alone: matrix multiply-adds as two operations each,
/// and bytes of weights and KV that must come from memory. Norms, activations and rotations are
/// left out: they are below a hundredth.
class ModelWork {
 public:
  /// `weight_bytes` and `kv_bytes`: of one stored number. `copies`: how many copies of each matrix
  /// (except those of experts) a step reads: one for each replica of a step domain, and for each
  /// rank of a context group.
  /// `attention_copies`: the same of attention's matrices, if they have others
  /// (data_parallel_attention).
  ModelWork(const ModelConfig& model, double weight_bytes, double kv_bytes, double copies = 1,
            std::optional<double> attention_copies = {});

  /// Returns the operations to compute the tokens of these answers. `computed_prompt_tokens` of all
  /// their prompts were computed: fewer than the prompts have if prefixes were cached, more if
  /// choices or preemptions computed them again. Attention counts what a layer's window lets a
  /// token see. Choices of one request count as equally long.
  double operations(std::span<const Outcome> outcomes, double computed_prompt_tokens) const;

  /// Returns the bytes that `steps` must read at least for these answers: every matrix once a step,
  /// the head only if tokens are sampled, and as many experts as the step's tokens reach if they
  /// choose evenly; and for each generated token but the first of a choice (the prompt yields that
  /// one), the earlier KV that it sees.
  double bytes(std::span<const Outcome> outcomes, const StepTally& steps) const;

  /// Number of matrix parameters applied to a token, without embedding and head; of its k experts.
  double parameters_per_token() const { return dense_parameters_ + chosen_parameters_; }

 private:
  /// Tokens seen by those at positions [from, to), themselves included, summed over the layers.
  double seen(double from, double to) const;

  std::map<std::int64_t, double> windows_;  ///< number of layers by window; 0: no window
  double layers_ = 0;
  double dense_parameters_ = 0;   ///< applied to every token
  double chosen_parameters_ = 0;  ///< the experts of one token
  double expert_parameters_ = 0;  ///< all experts
  double head_parameters_ = 0;
  double choice_share_ = 1;     ///< experts of a token / experts
  double pair_operations_ = 0;  ///< of a layer's attention, for a token and one that it sees
  double kv_numbers_ = 0;       ///< of one token in one layer
  double weight_bytes_ = 0;
  double kv_bytes_ = 0;
  double copies_ = 1;
  double more_attention_ = 0;  ///< parameters of attention that are read beside copies_
};

}  // namespace troupe
