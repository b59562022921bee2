#include "tests/golden/kv_policies/dense_reference.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "models/families/family.hpp"
#include "models/layers/attention/rope_table.hpp"
#include "parallel/device/convert.hpp"

namespace troupe::golden {

namespace {

constexpr std::int64_t positions = 2048;

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

Result<std::vector<double>> read(const Checkpoint& checkpoint, const std::string& name) {
  TROUPE_TRY(const Tensor tensor, checkpoint.tensor(name));
  std::vector<double> values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    values.push_back(static_cast<double>(read_element(tensor, i)));
  }
  return values;
}

/// The attention of the observed tokens, averaged over `width` neighbours; zeros beyond the ends.
std::vector<double> pooled(const std::vector<double>& attention, std::int32_t width) {
  std::vector<double> averages;
  const auto count = static_cast<std::int32_t>(attention.size());
  for (std::int32_t i = 0; i < count; ++i) {
    double sum = 0.0;
    for (std::int32_t j = i - width / 2; j <= i + width / 2; ++j) {
      if (j >= 0 && j < count) sum += attention[size(j)];
    }
    averages.push_back(sum / width);
  }
  return averages;
}

}  // namespace

Result<DenseReference> DenseReference::load(const std::filesystem::path& folder,
                                            const KvPolicy& policy) {
  DenseReference reference;
  TROUPE_TRY(reference.config_, load_model_config(folder));
  TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
  reference.policy_ = policy;
  const ModelConfig& config = reference.config_;
  const auto matrix = [&](const std::string& name, std::int64_t rows) -> Result<Matrix> {
    TROUPE_TRY(Vector values, read(checkpoint, name));
    const std::size_t columns = values.size() / size(rows);
    return Matrix{size(rows), columns, std::move(values)};
  };
  TROUPE_TRY(reference.embedding_, matrix("model.embed_tokens.weight", config.vocab_size));
  if (!config.tie_word_embeddings) {
    TROUPE_TRY(reference.head_, matrix("lm_head.weight", config.vocab_size));
  }
  TROUPE_TRY(reference.final_norm_, read(checkpoint, "model.norm.weight"));
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string at = fmt::format("model.layers.{}.", i);
    const std::int64_t dim = config.head_dim, inner = config.intermediate_size;
    Layer layer;
    TROUPE_TRY(layer.attention_norm, read(checkpoint, at + "input_layernorm.weight"));
    TROUPE_TRY(layer.mlp_norm, read(checkpoint, at + "post_attention_layernorm.weight"));
    if (config.query_key_norm == QueryKeyNorm::heads) {
      TROUPE_TRY(layer.query_norm, read(checkpoint, at + "self_attn.q_norm.weight"));
      TROUPE_TRY(layer.key_norm, read(checkpoint, at + "self_attn.k_norm.weight"));
    }
    TROUPE_TRY(layer.query, matrix(at + "self_attn.q_proj.weight", config.heads * dim));
    TROUPE_TRY(layer.key, matrix(at + "self_attn.k_proj.weight", config.kv_heads * dim));
    TROUPE_TRY(layer.value, matrix(at + "self_attn.v_proj.weight", config.kv_heads * dim));
    TROUPE_TRY(layer.output, matrix(at + "self_attn.o_proj.weight", config.hidden_size));
    TROUPE_TRY(layer.gate, matrix(at + "mlp.gate_proj.weight", inner));
    TROUPE_TRY(layer.up, matrix(at + "mlp.up_proj.weight", inner));
    TROUPE_TRY(layer.down, matrix(at + "mlp.down_proj.weight", config.hidden_size));
    layer.heads.resize(size(config.kv_heads));
    reference.layers_.push_back(std::move(layer));
  }
  reference.rope_ = rope_table(config.rope, positions, config.head_dim);
  return reference;
}

DenseReference::Vector DenseReference::normed(const Vector& x, const Vector& weight) const {
  double squares = 0.0;
  for (const double value : x) squares += value * value;
  const double factor =
      1.0 / std::sqrt(squares / static_cast<double>(x.size()) + double{config_.norm.eps});
  Vector out;
  for (std::size_t i = 0; i < x.size(); ++i) out.push_back(x[i] * factor * weight[i]);
  return out;
}

DenseReference::Vector DenseReference::times(const Matrix& matrix, const Vector& x) {
  Vector out;
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    double sum = 0.0;
    for (std::size_t i = 0; i < matrix.columns; ++i) {
      sum += matrix.values[row * matrix.columns + i] * x[i];
    }
    out.push_back(sum);
  }
  return out;
}

DenseReference::Vector DenseReference::rotated(const Vector& head, std::int32_t position) const {
  const float* table = rope_->as<float>() + position * config_.head_dim;
  const std::size_t half = head.size() / 2;
  Vector out(head.size());
  for (std::size_t i = 0; i < half; ++i) {
    const double cosine = table[i], sine = table[half + i];
    out[i] = head[i] * cosine - head[half + i] * sine;
    out[half + i] = head[half + i] * cosine + head[i] * sine;
  }
  return out;
}

void DenseReference::drop(Head& head, std::int32_t prompt_tokens) const {
  std::vector<std::int32_t>& kept = head.kept;
  const auto count = static_cast<std::int32_t>(kept.size());
  const std::int32_t full = policy_.capacity;
  switch (policy_.kind) {
    case KvPolicy::Kind::full:
      return;
    case KvPolicy::Kind::streaming:  // the oldest of the window go
      if (count == full) {
        kept.erase(kept.begin() + policy_.first_tokens,
                   kept.begin() + policy_.first_tokens + policy_.drop_tokens);
      }
      return;
    case KvPolicy::Kind::snapkv:
      if (position_ != prompt_tokens || count <= full) return;
      break;
    case KvPolicy::Kind::h2o:
      if (position_ < prompt_tokens || count < full) return;
      break;
  }
  // Those with the most attention stay, beside the last ones.
  const std::int32_t budget =
      policy_.kind == KvPolicy::Kind::h2o ? full - policy_.drop_tokens : full;
  std::vector<std::int32_t> candidates(kept.begin(), kept.end() - policy_.last_tokens);
  const std::vector<std::int32_t> last(kept.end() - policy_.last_tokens, kept.end());
  Vector attention;
  for (const std::int32_t position : candidates)
    attention.push_back(head.attention[size(position)]);
  attention = pooled(attention, policy_.pooling_tokens);
  std::vector<std::size_t> order(candidates.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](auto a, auto b) { return attention[a] > attention[b]; });
  order.resize(size(budget - policy_.last_tokens));
  std::ranges::sort(order);
  kept.clear();
  for (const std::size_t i : order) kept.push_back(candidates[i]);
  kept.insert(kept.end(), last.begin(), last.end());
}

DenseReference::Vector DenseReference::attend(Layer& layer, const Vector& x,
                                              std::int32_t prompt_tokens) {
  const std::size_t dim = size(config_.head_dim), group = size(config_.heads / config_.kv_heads);
  const auto part = [dim](const Vector& all, std::size_t head) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(head * dim);
    return Vector(first, first + static_cast<std::ptrdiff_t>(dim));
  };
  const Vector queries = times(layer.query, x), keys = times(layer.key, x);
  const Vector values = times(layer.value, x);
  const bool has_norms = !layer.query_norm.empty();
  Vector attended;
  for (std::size_t kv = 0; kv < layer.heads.size(); ++kv) {
    Head& head = layer.heads[kv];
    drop(head, prompt_tokens);
    head.kept.push_back(position_);
    const Vector key = part(keys, kv);
    head.keys.push_back(has_norms ? normed(key, layer.key_norm) : key);
    head.values.push_back(part(values, kv));
    head.attention.push_back(0.0);
    for (std::size_t q = kv * group; q < (kv + 1) * group; ++q) {
      Vector query = part(queries, q);
      if (has_norms) query = normed(query, layer.query_norm);
      // Positions within the cache (StreamingLLM, section 3.2), or the tokens' own.
      const bool by_entry = policy_.kind == KvPolicy::Kind::streaming;
      const auto place = [&](std::size_t entry) {
        return by_entry ? static_cast<std::int32_t>(entry) : head.kept[entry];
      };
      query = rotated(query, place(head.kept.size() - 1));
      Vector terms;
      double total = 0.0;
      for (std::size_t entry = 0; entry < head.kept.size(); ++entry) {
        const Vector rotated_key = rotated(head.keys[size(head.kept[entry])], place(entry));
        double score = 0.0;
        for (std::size_t i = 0; i < dim; ++i) score += query[i] * rotated_key[i];
        terms.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
        total += terms.back();
      }
      Vector sum(dim, 0.0);
      for (std::size_t entry = 0; entry < head.kept.size(); ++entry) {
        const std::size_t position = size(head.kept[entry]);
        const double weight = terms[entry] / total;
        if (policy_.kind == KvPolicy::Kind::h2o ||
            (position_ < prompt_tokens && position_ >= prompt_tokens - policy_.last_tokens)) {
          head.attention[position] += weight;
        }
        for (std::size_t i = 0; i < dim; ++i) sum[i] += weight * head.values[position][i];
      }
      attended.insert(attended.end(), sum.begin(), sum.end());
    }
  }
  return times(layer.output, attended);
}

std::vector<double> DenseReference::next(std::int32_t token, std::int32_t prompt_tokens) {
  const auto row =
      embedding_.values.begin() + static_cast<std::ptrdiff_t>(size(token) * embedding_.columns);
  Vector hidden(row, row + static_cast<std::ptrdiff_t>(embedding_.columns));
  const auto add = [&](const Vector& update) {
    for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] += update[i];
  };
  for (Layer& layer : layers_) {
    add(attend(layer, normed(hidden, layer.attention_norm), prompt_tokens));
    const Vector x = normed(hidden, layer.mlp_norm);
    Vector gate = times(layer.gate, x);
    const Vector up = times(layer.up, x);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1.0 + std::exp(-gate[i]));
    add(times(layer.down, gate));
  }
  ++position_;
  const Matrix& output = head_.rows > 0 ? head_ : embedding_;
  Vector logits = times(output, normed(hidden, final_norm_));
  double total = 0.0;
  for (const double logit : logits) total += std::exp(logit);
  for (double& logit : logits) logit -= std::log(total);
  return logits;
}

}  // namespace troupe::golden
