#include "models/layers/moe/device_dispatch_moe.hpp"

#include <algorithm>

namespace troupe {

Result<PendingSum> DeviceDispatchMoe::forward(const Tensor& x, const Tensor& out) const {
  const std::int64_t tokens = x[0];
  const Slice own = group_.token_slice(tokens);
  const Tensor own_x = x.rows(own.begin, own.count);
  const Tensor ids = space_.expert_ids->rows(0, own.count);
  const Tensor weights = space_.expert_weights->rows(0, own.count);
  // Half as many bytes. Ranks whose devices can do it have experts of the same encoding.
  const bool sends_codes = exchange_.takes_codes() && ops_.moe().takes_codes(gate_up_weight());
  // Before the router, while the norm's codes are still known as those of own_x.
  const CodedTokens coded = sends_codes ? ops_.moe().codes_of(own_x) : CodedTokens();
  if (own.count > 0) router().choose(own_x, ids, weights);
  TROUPE_CHECK(exchange_.dispatch(sends_codes ? coded.codes : own_x, coded.scales, ids, weights));
  const Tensor results = compute(sends_codes);
  if (group_.divides(tokens)) {
    TROUPE_CHECK(exchange_.combine(results, out));
    add_output_bias(ids, weights, out);
    return PendingSum();
  }
  const Tensor own_out = out.rows(own.begin, own.count);
  TROUPE_CHECK(exchange_.combine(results, own_out));
  add_output_bias(ids, weights, own_out);
  TROUPE_CHECK(group_.gather_slices(out));
  return PendingSum();
}

/// This rank's experts' outputs for the rows received, as codes or not: [capacity * top_k, hidden].
Tensor DeviceDispatchMoe::compute(bool are_codes) const {
  const std::int64_t top_k = router().top_k(), inner = down_weight().in_features();
  const std::int64_t assignments = exchange_.capacity() * top_k;
  const std::int64_t likely =
      exchange_.expected_rows() * top_k * experts_.count / router().experts();
  const ExpertBatch batch{space_.expert_offsets, space_.expert_source->rows(0, assignments),
                          std::clamp<std::int64_t>(likely, 1, assignments),
                          are_codes ? exchange_.received_scales() : Tensor()};
  const Tensor gate_up = first_rows(space_.gate_up, assignments, 2 * inner);
  const Tensor activated = first_rows(space_.activated, assignments, inner);
  const Tensor results = space_.expert_rows->rows(0, assignments);
  ops_.moe().permute_received(exchange_.received_ids(), exchange_.received_counts(), experts_.begin,
                              batch, rows_per_expert());
  activate(are_codes ? exchange_.received_codes() : exchange_.received(), batch, top_k, gate_up,
           activated);
  ops_.moe().grouped_linear(down_weight(), activated, batch, top_k, false, true, results);
  return results;
}

}  // namespace troupe
