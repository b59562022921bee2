#include "models/layers/moe/tensor_parallel_moe.hpp"

#include <algorithm>

namespace troupe {

bool TensorParallelMoe::takes(const SharedMlp& shared, std::int64_t tokens) const {
  return are_plain() && combines_first() &&
         ops_.moe().adds_shared_mlp(shared, down_weight(), tokens, router().top_k());
}

Result<PendingSum> TensorParallelMoe::forward_with_shared(const SharedMlp& shared, const Tensor& x,
                                                          const Tensor& out) const {
  const std::int64_t tokens = x[0];
  if (tokens == 0) return PendingSum();
  const std::int64_t top_k = router().top_k();
  const std::int64_t rows = tokens * top_k;
  const std::int64_t inner = down_weight().in_features();
  const ExpertChoices choices{space_.expert_ids->rows(0, tokens),
                              space_.expert_weights->rows(0, tokens), experts_.begin};
  const std::int64_t likely = rows * experts_.count / router().experts();
  const ExpertBatch batch{space_.expert_offsets, space_.expert_source->rows(0, rows),
                          std::max<std::int64_t>(likely, 1)};
  const Tensor gate_up = first_rows(space_.gate_up, rows, 2 * inner);
  const Tensor activated = first_rows(space_.activated, rows, inner);

  router().choose(x, choices, batch, rows_per_expert());
  if (combines_first()) {
    const Tensor of_shared = shared.down == nullptr ? Tensor()
                                                    : first_rows(space_.shared_activated, tokens,
                                                                 shared.down->in_features());
    const ExpertScratch scratch{gate_up, activated, space_.expert_rows->rows(0, rows), of_shared};
    TROUPE_TRY(PendingSum sum, group_.defer_all_reduce(tokens, out, [&](const Tensor& sums) {
      compute(x, choices, batch, scratch, sums, shared);
    }));
    if (!has_output_bias()) return sum;
    TROUPE_CHECK(group_.complete(std::move(sum), out));
    add_bias_of_own_rows(choices, out);
    return PendingSum();
  }
  const Slice own = group_.own_slice(tokens);
  const Tensor own_rows = space_.expert_rows->rows(0, own.count * top_k);
  activate(x, batch, top_k, gate_up, activated);
  TROUPE_CHECK(group_.sum_to_owners(tokens, top_k, own_rows, [&](const Tensor& sums) {
    ops_.moe().grouped_linear(down_weight(), activated, batch, top_k, false, true, sums);
  }));
  ops_.moe().combine(own_rows, choices.weights.rows(own.begin, own.count), out);
  add_bias_of_own_rows(choices, out);
  return PendingSum();
}

void TensorParallelMoe::add_bias_of_own_rows(const ExpertChoices& choices,
                                             const Tensor& out) const {
  const Slice own = group_.own_slice(choices.ids[0]);
  add_output_bias(choices.ids.rows(own.begin, own.count),
                  choices.weights.rows(own.begin, own.count), out);
}

}  // namespace troupe
