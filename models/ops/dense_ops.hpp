#pragma once

#include <cstdint>

#include "models/config/activation.hpp"
#include "models/ops/linear.hpp"
#include "models/ops/op_checks.hpp"
#include "parallel/device/tensor.hpp"

namespace troupe {

/// Products with weights, and operations on rows. Only enqueue, as ops.hpp says.
class DenseOps {
 public:
  virtual ~DenseOps() = default;

  /// out[i] = table[ids[i] - vocab_begin], zeros (+0.0) where that is not a local row; never -0.0.
  /// ids [tokens] i32, out [tokens, hidden].
  void embed(const Tensor& table, const Tensor& ids, std::int64_t vocab_begin, const Tensor& out) {
    if constexpr (op_checks::enabled) op_checks::embed(table, ids, out);
    do_embed(table, ids, vocab_begin, out);
  }

  /// out = x / sqrt(mean(x^2) + eps) * weight, over the last extent (Zhang & Sennrich 2019,
  /// RMSNorm). x, out [rows, hidden] (may be the same memory); weight [hidden] f32. `next`, if
  /// given, is the matrix that the very next operation multiplies all of `out` with, and nothing
  /// else reads `out`: a device may then leave `out` unset.
  void rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out,
                const Linear* next = nullptr) {
    if constexpr (op_checks::enabled) op_checks::rms_norm(x, weight, out, next);
    do_rms_norm(x, weight, eps, out, next);
  }

  /// residual += x, then out = rms_norm(residual), with `next` as there. All [rows, hidden].
  void add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, float eps,
                    const Tensor& out, const Linear* next = nullptr) {
    if constexpr (op_checks::enabled) op_checks::add_rms_norm(residual, x, weight, out, next);
    do_add_rms_norm(residual, x, weight, eps, out, next);
  }

  /// residual += x, rounded like in add_rms_norm. Both [rows, hidden].
  void add(const Tensor& residual, const Tensor& x) {
    if constexpr (op_checks::enabled) op_checks::add(residual, x);
    do_add(residual, x);
  }

  /// x += bias, row by row. x [rows, n] f32 or activation dtype; bias [n] f32.
  void add_bias(const Tensor& x, const Tensor& bias) {
    if constexpr (op_checks::enabled) op_checks::add_bias(x, bias);
    do_add_bias(x, bias);
  }

  /// out = x . weight^T. x [rows, k], out [rows, n] f32 or activation dtype. Rows may be 0.
  void linear(const Linear& weight, const Tensor& x, const Tensor& out) {
    if constexpr (op_checks::enabled) op_checks::linear(weight, x, out);
    do_linear(weight, x, out);
  }

  /// From now on, where products of these Ops round rows of activations to 8 bits, the largest
  /// magnitude in them goes to `peak`, if it is larger than that: one f32, at least 0, infinite for
  /// numbers that are not finite. Device memory, which must stay until another is given; empty:
  /// nowhere. Captured passes keep theirs.
  virtual void watch_rows(const Tensor& peak);

  /// linear, then silu_mul: out [rows, n / 2]. `scratch` [rows, n] may be overwritten. `next`: as
  /// in rms_norm.
  void linear_gate_up(const Linear& weight, const Tensor& x, const Tensor& scratch,
                      const Tensor& out, const Linear* next = nullptr) {
    if constexpr (op_checks::enabled) op_checks::linear_gate_up(weight, x, scratch, out, next);
    do_linear_gate_up(weight, x, scratch, out, next);
  }

  /// out = silu(gate) * up. gate_up [rows, 2 * inner] (gate first), out [rows, inner].
  void silu_mul(const Tensor& gate_up, const Tensor& out) {
    if constexpr (op_checks::enabled) op_checks::silu_mul(gate_up, out);
    do_silu_mul(gate_up, out);
  }

  /// out = activation(x), for gated activations of gate and up side by side. x [rows, 2 * inner]
  /// (gate first) or [rows, inner], out [rows, inner].
  void activate(const Tensor& x, Activation activation, const Tensor& out) {
    if (activation == Activation::silu_gated) return silu_mul(x, out);
    if constexpr (op_checks::enabled) op_checks::activate(x, activation, out);
    do_activate(x, activation, out);
  }

  /// out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias, over the last extent (Ba et al.
  /// 2016, LayerNorm). x, out [rows, hidden] (may be the same memory); weight and bias, which may
  /// be empty, [hidden] f32.
  void layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                  const Tensor& out) {
    if constexpr (op_checks::enabled) op_checks::layer_norm(x, weight, bias, out);
    do_layer_norm(x, weight, bias, eps, out);
  }

  /// x *= factor, then, with a cap above 0, x = soft_cap * tanh(x / soft_cap).
  void scale(const Tensor& x, float factor, float soft_cap) { do_scale(x, factor, soft_cap); }

  /// x[r] *= sigmoid(input[r] . weight). x [rows, n] f32 or activation dtype; input [rows, k]
  /// activation; weight [k] f32.
  void gate_rows(const Tensor& x, const Tensor& input, const Tensor& weight) {
    if constexpr (op_checks::enabled) op_checks::gate_rows(x, input, weight);
    do_gate_rows(x, input, weight);
  }

  /// out = the sum of x's parts in the order of parallel/collectives/tree_sum.hpp. x [parts * rows,
  /// width] f32, part after part; out [rows, width] f32, not the same memory.
  void tree_sum(const Tensor& x, const Tensor& out) {
    if constexpr (op_checks::enabled) op_checks::tree_sum(x, out);
    do_tree_sum(x, out);
  }

  /// out[i] = x[rows[i]]. rows [n] i32, out [n, width].
  void gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) {
    if constexpr (op_checks::enabled) op_checks::gather_rows(x, rows, out);
    do_gather_rows(x, rows, out);
  }

  /// Puts parts of rows side by side: out[r, p * width + c] = parts[p * rows + r, c], as far as out
  /// has columns. parts [ranks * rows, width], out [rows, n].
  void concat_columns(const Tensor& parts, const Tensor& out) {
    if constexpr (op_checks::enabled) op_checks::concat_columns(parts, out);
    do_concat_columns(parts, out);
  }

 private:
  virtual void do_embed(const Tensor& table, const Tensor& ids, std::int64_t vocab_begin,
                        const Tensor& out) = 0;
  virtual void do_rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out,
                           const Linear* next) = 0;
  virtual void do_add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                               float eps, const Tensor& out, const Linear* next) = 0;
  virtual void do_add(const Tensor& residual, const Tensor& x) = 0;
  virtual void do_add_bias(const Tensor& x, const Tensor& bias) = 0;
  virtual void do_linear(const Linear& weight, const Tensor& x, const Tensor& out) = 0;
  virtual void do_linear_gate_up(const Linear& weight, const Tensor& x, const Tensor& scratch,
                                 const Tensor& out, const Linear* next) = 0;
  virtual void do_silu_mul(const Tensor& gate_up, const Tensor& out) = 0;
  virtual void do_activate(const Tensor& x, Activation activation, const Tensor& out) = 0;
  virtual void do_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                             const Tensor& out) = 0;
  virtual void do_scale(const Tensor& x, float factor, float soft_cap) = 0;
  virtual void do_gate_rows(const Tensor& x, const Tensor& input, const Tensor& weight) = 0;
  virtual void do_tree_sum(const Tensor& x, const Tensor& out) = 0;
  virtual void do_gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) = 0;
  virtual void do_concat_columns(const Tensor& parts, const Tensor& out) = 0;
};

inline void DenseOps::watch_rows(const Tensor& /*peak*/) {}

}  // namespace troupe
