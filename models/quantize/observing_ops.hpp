#pragma once

#include <memory>
#include <utility>

#include "models/ops/ops.hpp"
#include "models/ops/unfused_moe.hpp"
#include "models/quantize/input_observer.hpp"

namespace troupe {

// Ops of the CPU whose products are observed: everything is passed on to `inner`, which outlives
// them, and an InputObserver sees the inputs of matrices. Combined operations are carried out one
// by one, so that it sees all.

class ObservingWeightOps final : public WeightOps {
 public:
  ObservingWeightOps(WeightOps& inner, InputObserver& observer)
      : inner_(inner), observer_(observer) {}

  Result<std::unique_ptr<Linear>> prepare(const Tensor& weight, int segments,
                                          WeightEncoding encoding) override {
    return told(inner_.prepare(weight, segments, encoding));
  }
  Result<std::unique_ptr<GroupedLinear>> prepare_grouped(std::span<const Tensor> weights,
                                                         int segments,
                                                         WeightEncoding encoding) override {
    return told(inner_.prepare_grouped(weights, segments, encoding));
  }
  Result<DeviceTensor> prepare_table(const Tensor& weight) override {
    return inner_.prepare_table(weight);
  }
  Result<std::unique_ptr<Linear>> load(const StoredMatrix& weight, int segments,
                                       WeightEncoding encoding) override {
    return told(inner_.load(weight, segments, encoding));
  }
  Result<std::unique_ptr<GroupedLinear>> load_grouped(std::span<const StoredMatrix> weights,
                                                      int segments,
                                                      WeightEncoding encoding) override {
    return told(inner_.load_grouped(weights, segments, encoding));
  }
  Result<DeviceTensor> load_table(const StoredMatrix& weight) override {
    return inner_.load_table(weight);
  }
  Result<LoadedWeights> finish_loading(
      const std::function<void(const LoadedWeights&)>& progress) override {
    return inner_.finish_loading(progress);
  }
  std::unique_ptr<Linear> share_table(const Tensor& table) override {
    return inner_.share_table(table);
  }

 private:
  template <class Made>
  Made told(Made made) {
    if (made.ok()) observer_.on_made(**made);
    return made;
  }

  WeightOps& inner_;
  InputObserver& observer_;
};

class ObservingDenseOps final : public DenseOps {
 public:
  ObservingDenseOps(DenseOps& inner, InputObserver& observer)
      : inner_(inner), observer_(observer) {}

 private:
  void do_linear(const Linear& weight, const Tensor& x, const Tensor& out) override {
    observer_.on_input(weight, x);
    inner_.linear(weight, x, out);
  }
  void do_linear_gate_up(const Linear& weight, const Tensor& x, const Tensor& scratch,
                         const Tensor& out, const Linear* /*next*/) override {
    observer_.on_input(weight, x);
    inner_.linear_gate_up(weight, x, scratch, out);  // without next: observers read `out`
  }
  void do_embed(const Tensor& table, const Tensor& ids, std::int64_t vocab_begin,
                const Tensor& out) override {
    inner_.embed(table, ids, vocab_begin, out);
  }
  void do_rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out,
                   const Linear* /*next*/) override {
    inner_.rms_norm(x, weight, eps, out);
  }
  void do_add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, float eps,
                       const Tensor& out, const Linear* /*next*/) override {
    inner_.add_rms_norm(residual, x, weight, eps, out);
  }
  void do_add(const Tensor& residual, const Tensor& x) override { inner_.add(residual, x); }
  void do_add_bias(const Tensor& x, const Tensor& bias) override { inner_.add_bias(x, bias); }
  void do_silu_mul(const Tensor& gate_up, const Tensor& out) override {
    inner_.silu_mul(gate_up, out);
  }
  void do_activate(const Tensor& x, Activation activation, const Tensor& out) override {
    inner_.activate(x, activation, out);
  }
  void do_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                     const Tensor& out) override {
    inner_.layer_norm(x, weight, bias, eps, out);
  }
  void do_scale(const Tensor& x, float factor, float soft_cap) override {
    inner_.scale(x, factor, soft_cap);
  }
  void do_gate_rows(const Tensor& x, const Tensor& input, const Tensor& weight) override {
    inner_.gate_rows(x, input, weight);
  }
  void do_tree_sum(const Tensor& x, const Tensor& out) override { inner_.tree_sum(x, out); }
  void do_gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) override {
    inner_.gather_rows(x, rows, out);
  }
  void do_concat_columns(const Tensor& parts, const Tensor& out) override {
    inner_.concat_columns(parts, out);
  }

  DenseOps& inner_;
  InputObserver& observer_;
};

class ObservingMoeOps final : public MoeOps {
 public:
  ObservingMoeOps(MoeOps& inner, DenseOps& dense, InputObserver& observer)
      : inner_(inner), dense_(dense), observer_(observer) {}

 private:
  void do_grouped_linear(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                         std::int64_t top_k, bool gather, bool scatter,
                         const Tensor& out) override {
    observer_.on_input(weights, x, batch, top_k, gather);
    inner_.grouped_linear(weights, x, batch, top_k, gather, scatter, out);
  }
  void do_grouped_gate_up(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                          std::int64_t top_k, const Tensor& scratch, const Tensor& out) override {
    unfused_grouped_gate_up(*this, dense_, weights, x, batch, top_k, scratch, out);
  }
  void do_expert_mlp(const GroupedLinear& gate_up, const GroupedLinear& down, const Tensor& x,
                     const ExpertChoices& choices, const ExpertBatch& batch,
                     const ExpertScratch& scratch, const Tensor& out,
                     const SharedMlp& /*none*/) override {
    unfused_expert_mlp(*this, gate_up, down, x, choices, batch, scratch, out);
  }
  void do_add_expert_bias(const Tensor& x, const ExpertBatch& batch, const Tensor& bias) override {
    inner_.add_expert_bias(x, batch, bias);
  }
  void do_add_chosen_bias(const Tensor& ids, const Tensor& weights, const Tensor& bias,
                          const Tensor& out) override {
    inner_.add_chosen_bias(ids, weights, bias, out);
  }
  void do_route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                const Tensor& ids, const Tensor& weights) override {
    inner_.route(logits, bias, options, ids, weights);
  }
  void do_permute(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch) override {
    inner_.permute(ids, first_expert, batch);
  }
  void do_count_rows(const ExpertBatch& batch, const Tensor& counts) override {
    inner_.count_rows(batch, counts);
  }
  void do_permute_received(const Tensor& ids, const Tensor& received_counts,
                           std::int64_t first_expert, const ExpertBatch& batch,
                           const Tensor& counts) override {
    inner_.permute_received(ids, received_counts, first_expert, batch, counts);
  }
  void do_route_and_permute(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                            const ExpertChoices& choices, const ExpertBatch& batch,
                            const Tensor& counts) override {
    inner_.route_and_permute(logits, bias, options, choices, batch, counts);
  }
  void do_route_tokens(const Linear& router, const Tensor& x, const Tensor& logits,
                       const Tensor& bias, const RouterOptions& options,
                       const ExpertChoices& choices, const ExpertBatch& batch,
                       const Tensor& counts) override {
    inner_.route_tokens(router, x, logits, bias, options, choices, batch, counts);
  }
  void do_heads_linear(const GroupedLinear& weights, const Columns& x, const Tensor& out) override {
    inner_.heads_linear(weights, x, out);
  }
  void do_combine(const Tensor& x, const Tensor& weights, const Tensor& out) override {
    inner_.combine(x, weights, out);
  }
  void do_combine_local(const Tensor& x, const ExpertChoices& choices, std::int64_t local,
                        const Tensor& out) override {
    inner_.combine_local(x, choices, local, out);
  }

  MoeOps& inner_;
  DenseOps& dense_;
  InputObserver& observer_;
};

class ObservingOps final : public Ops {
 public:
  ObservingOps(Ops& inner, InputObserver& observer)
      : inner_(inner),
        weights_(inner.weights(), observer),
        dense_(inner.dense(), observer),
        moe_(inner.moe(), dense_, observer) {}

  DType activation_dtype() const override { return inner_.activation_dtype(); }
  std::int64_t rows_at_once() const override { return inner_.rows_at_once(); }
  MemoryOps& memory() override { return inner_.memory(); }
  StreamOps& stream() override { return inner_.stream(); }
  WeightOps& weights() override { return weights_; }
  DenseOps& dense() override { return dense_; }
  AttentionOps& attention() override { return inner_.attention(); }
  MoeOps& moe() override { return moe_; }
  SamplingOps& sampling() override { return inner_.sampling(); }

 private:
  Ops& inner_;
  ObservingWeightOps weights_;
  ObservingDenseOps dense_;
  ObservingMoeOps moe_;
};

}  // namespace troupe
