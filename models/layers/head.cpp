#include "models/layers/head.hpp"

#include <algorithm>
#include <utility>

#include "models/ops/coded_matrix.hpp"

namespace troupe {

Head::Head(const LayerContext& context, Norm norm)
    : ops_(context.ops),
      tokens_(context.tensor),
      dense_(context.dense),
      context_(context.context),
      group_(context.tensor.collectives()),
      space_(context.space),
      norm_(std::move(norm)),
      scale_(context.config.logit_scale),
      soft_cap_(context.config.logit_soft_cap) {}

Result<Head> Head::create(const LayerContext& context, const Embedding* tied) {
  const bool is_tied = context.config.tie_word_embeddings;
  TROUPE_TRY(Norm norm,
             Norm::create(context, Parameter::final_norm, Parameter::final_norm_bias, 0));
  Head head(context, std::move(norm));
  if (is_tied && tied != nullptr) head.weight_ = context.ops.weights().share_table(tied->table());
  head.owns_weight_ = head.weight_ == nullptr;
  if (head.owns_weight_) {
    const Parameter source = is_tied ? Parameter::embedding : Parameter::head;
    TROUPE_TRY(const StoredMatrix rows, context.weights.vocabulary_rows(source));
    const WeightEncoding encoding = context.weights.encoding_of(source);
    TROUPE_TRY(head.weight_, context.ops.weights().load(rows, 1, encoding));
    context.weights.note({source}, 0, *head.weight_, coded_form(rows, encoding).obstacle);
  }
  const int ranks = head.dense_ != nullptr ? head.dense_->size() : head.tokens_.size();
  head.rows_per_rank_.resize(static_cast<std::size_t>(ranks));
  return head;
}

Result<void> Head::forward(HiddenState& hidden, std::int64_t tokens, const Tensor& rows,
                           const Tensor& logits, bool divided) {
  const std::int64_t count = rows.empty() ? hidden.tokens() : rows[0];
  const Tensor normed = space_.head_normed->rows(0, count);
  if (rows.empty()) {
    TROUPE_CHECK(tokens_.add_and_norm(ops_, hidden, {norm_, normed, true}));
  } else {
    TROUPE_CHECK(norm_rows(hidden, tokens, rows, normed));
  }
  if (dense_ != nullptr) return project_for_all(normed, logits, divided);
  if (group_ == nullptr) {
    ops_.dense().linear(*weight_, normed, logits);
    scale(logits);
    return {};
  }
  const Tensor local = space_.local_logits->rows(0, count);
  ops_.dense().linear(*weight_, normed, local);
  scale(local);
  return divided ? group_->columns_to_rows(local, logits, space_.all_logits)
                 : gather_logits(local, logits);
}

Result<void> Head::serve_others() {
  return project_for_all(space_.head_normed->rows(0, 0), Tensor(), true);
}

Result<void> Head::project_for_all(const Tensor& normed, const Tensor& logits, bool divided) {
  const Slice own = tokens_.token_slice(normed[0]);
  const std::int64_t most = space_.local_logits.view()[0];
  TROUPE_CHECK(dense_->for_each_part(most, [&](const DenseGroup::Part& part) -> Result<void> {
    TROUPE_TRY(const Tensor rows, dense_->gather(normed, part));
    const Tensor local = space_.local_logits->rows(0, part.rows);
    ops_.dense().linear(*weight_, rows, local);
    scale(local);
    const Tensor columns = space_.all_logits->rows(0, dense_->size() * part.own.count);
    std::ranges::fill(rows_per_rank_, part.own.count);
    TROUPE_CHECK(
        dense_->collectives().all_to_all(local, part.rows_per_rank, columns, rows_per_rank_));
    if (part.own.count == 0) return {};
    const std::int64_t first = divided ? part.own.begin - own.begin : part.own.begin;
    ops_.dense().concat_columns(columns, logits.rows(first, part.own.count));
    return {};
  }));
  return divided ? Result<void>() : tokens_.gather_slices(logits);
}

// normed[i] = norm(hidden of token rows[i]).
Result<void> Head::norm_rows(HiddenState& hidden, std::int64_t tokens, const Tensor& rows,
                             const Tensor& normed) {
  const std::int64_t count = rows[0];
  if (context_.divides()) {
    const Tensor all = space_.normed->rows(0, context_.rows());
    const Slice own = context_.own_rows();
    TROUPE_CHECK(tokens_.add_and_norm(ops_, hidden, {norm_, all.rows(own.begin, own.count), true}));
    TROUPE_CHECK(context_.all_gather(all));
    ops_.dense().gather_rows(all, rows, normed);
    return {};
  }
  const bool is_pending = hidden.sum.is_pending();
  if (tokens_.divides(tokens) || (is_pending && count == tokens)) {
    // Other ranks hold some of the rows, or all are needed.
    const Tensor all = tokens_.normed_rows(space_.normed, tokens);
    TROUPE_CHECK(tokens_.add_and_norm(ops_, hidden, {norm_, all, true}));
    TROUPE_CHECK(tokens_.await_rows());
    ops_.dense().gather_rows(all, rows, normed);
    return {};
  }
  const Tensor residual = space_.head_residual->rows(0, count);
  const Tensor update = space_.head_update->rows(0, count);
  ops_.dense().gather_rows(hidden.residual, rows, residual);
  if (is_pending) {
    const PendingSum sum = std::move(hidden.sum);
    ops_.dense().gather_rows(sum.partial(), rows, update);
    return tokens_.all_reduce_rms_norm(update, residual, {norm_, normed, true});
  }
  if (hidden.has_update) {
    ops_.dense().gather_rows(hidden.update, rows, update);
    norm_.add_and_apply(ops_, residual, update, normed);
  } else {
    norm_.apply(ops_, residual, normed);
  }
  return {};
}

void Head::scale(const Tensor& logits) const {
  if (scale_ != 1.0F || soft_cap_ > 0.0F) ops_.dense().scale(logits, scale_, soft_cap_);
}

Result<void> Head::gather_logits(const Tensor& local, const Tensor& logits) {
  const std::int64_t count = local[0];
  const int ranks = group_->size();
  const Tensor all = space_.all_logits->rows(0, ranks * count);
  std::ranges::fill(rows_per_rank_, count);
  TROUPE_CHECK(group_->all_gather(local, all, rows_per_rank_));
  ops_.dense().concat_columns(all, logits);
  return {};
}

}  // namespace troupe
