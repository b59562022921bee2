#include "models/layers/head.hpp"

#include <algorithm>

namespace troupe {

Head::Head(const LayerContext& context)
    : ops_(context.ops),
      tokens_(context.tensor),
      group_(context.tensor.collectives()),
      space_(context.space),
      norm_eps_(context.config.rms_norm_eps) {}

Result<Head> Head::create(const LayerContext& context) {
  const Parameter source =
      context.config.tie_word_embeddings ? Parameter::embedding : Parameter::head;
  Head head(context);
  TROUPE_TRY(head.norm_, context.weights.vector(Parameter::final_norm, 0));
  TROUPE_TRY(const HostTensor rows, context.weights.vocabulary_rows(source));
  TROUPE_TRY(head.weight_, context.ops.prepare(rows, 1));
  if (head.group_ == nullptr) return head;
  head.rows_per_rank_.resize(static_cast<std::size_t>(head.group_->size()));
  return head;
}

Result<void> Head::forward(HiddenState& hidden, std::int64_t tokens, const Tensor& rows,
                           const Tensor& logits) {
  const std::int64_t count = rows[0];
  const Tensor normed = space_.head_normed->rows(0, count);
  if (tokens_.sequence_parallel()) {
    // Other ranks hold some of the rows.
    const Tensor all = space_.normed->rows(0, tokens);
    const Slice own = tokens_.own_tokens(tokens);
    hidden.add_and_norm(ops_, norm_, norm_eps_, all.rows(own.begin, own.count));
    TROUPE_CHECK(tokens_.gather_tokens(all));
    ops_.gather_rows(all, rows, normed);
  } else {
    HiddenState chosen{space_.head_residual->rows(0, count), space_.head_update->rows(0, count),
                       hidden.has_update};
    ops_.gather_rows(hidden.residual, rows, chosen.residual);
    if (hidden.has_update) ops_.gather_rows(hidden.update, rows, chosen.update);
    chosen.add_and_norm(ops_, norm_, norm_eps_, normed);
  }
  if (group_ == nullptr) {
    ops_.linear(*weight_, normed, logits);
    return {};
  }
  const Tensor local = space_.local_logits->rows(0, count);
  ops_.linear(*weight_, normed, local);
  return gather_logits(local, logits);
}

Result<void> Head::gather_logits(const Tensor& local, const Tensor& logits) {
  const std::int64_t count = local[0];
  const int ranks = group_->size();
  const Tensor all = space_.all_logits->rows(0, ranks * count);
  std::ranges::fill(rows_per_rank_, count);
  TROUPE_CHECK(group_->all_gather(local, all, rows_per_rank_));
  ops_.join_columns(all, logits);
  return {};
}

}  // namespace troupe
