#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/checkpoint/checkpoint.hpp"
#include "models/config/model_config.hpp"
#include "models/kv_policy/kv_policy.hpp"
#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe::golden {

/// A Llama-like decoder in double, without a cache: every row attends densely over the keys of all
/// earlier tokens, which are kept unrotated, under an explicit mask of those that a KvPolicy keeps.
/// What the policies mean is written down here a second time, in the words of the papers.
class DenseReference {
 public:
  /// Reads a checkpoint of LlamaForCausalLM or Qwen3ForCausalLM. Errors: those of the readers.
  static Result<DenseReference> load(const std::filesystem::path& folder, const KvPolicy& policy);

  /// Computes the row of the next token and returns the natural-log probabilities of its successor,
  /// [vocab]. The first `prompt_tokens` tokens are the prompt.
  std::vector<double> next(std::int32_t token, std::int32_t prompt_tokens);

  /// The positions that KV head `head` of layer `layer` keeps.
  const std::vector<std::int32_t>& kept(std::size_t layer, std::size_t head) const {
    return layers_[layer].heads[head].kept;
  }

 private:
  using Vector = std::vector<double>;
  struct Matrix {
    std::size_t rows = 0, columns = 0;
    Vector values;
  };
  /// Of one KV head: all tokens' unrotated keys and values, and what the policy made of them.
  struct Head {
    std::vector<Vector> keys, values;
    Vector attention;                ///< that each token has received
    std::vector<std::int32_t> kept;  ///< positions, ascending
  };
  struct Layer {
    Vector attention_norm, mlp_norm, query_norm, key_norm;
    Matrix query, key, value, output, gate, up, down;
    std::vector<Head> heads;
  };

  Vector normed(const Vector& x, const Vector& weight) const;
  static Vector times(const Matrix& matrix, const Vector& x);
  /// Returns a head rotated to `position`.
  Vector rotated(const Vector& head, std::int32_t position) const;
  Vector attend(Layer& layer, const Vector& x, std::int32_t prompt_tokens);
  /// Masks what the policy drops before the row at position_.
  void drop(Head& head, std::int32_t prompt_tokens) const;

  ModelConfig config_;
  KvPolicy policy_;
  std::int32_t position_ = 0;  ///< of the next token
  Matrix embedding_, head_;
  Vector final_norm_;
  std::vector<Layer> layers_;
  HostTensor rope_;
};

}  // namespace troupe::golden
