#include "models/layers/moe/host_dispatch_moe.hpp"

namespace troupe {

Result<PendingSum> HostDispatchMoe::forward(const Tensor& x, const Tensor& out) const {
  const std::int64_t tokens = x[0];
  const Slice own = group_.token_slice(tokens);
  const Tensor own_x = x.rows(own.begin, own.count);
  TROUPE_CHECK(route(own_x));
  const Tensor received = space_.exchange.received->rows(0, exchange_.received_rows());
  const Tensor results = space_.exchange.results->rows(0, exchange_.received_rows());
  TROUPE_CHECK(send_to_experts(own_x, received));
  compute(received, results);
  if (group_.divides(tokens)) {
    TROUPE_CHECK(bring_back(results, out));
    return PendingSum();
  }
  TROUPE_CHECK(bring_back(results, out.rows(own.begin, own.count)));
  TROUPE_CHECK(group_.gather_slices(out));
  return PendingSum();
}

// Chooses experts for the rows of x, and exchanges the row counts with the other ranks.
Result<void> HostDispatchMoe::route(const Tensor& x) const {
  const std::int64_t tokens = x[0];
  const Tensor ids = space_.expert_ids->rows(0, tokens);
  const Tensor host_ids = space_.exchange.ids->rows(0, tokens);
  if (tokens > 0) {
    router().choose(x, ids, space_.expert_weights->rows(0, tokens));
    ops_.memory().download(ids, host_ids);
  }
  // Also: the host buffers that the last layer's uploads read are free again.
  TROUPE_CHECK(ops_.stream().synchronize());
  return exchange_.plan(host_ids);
}

Result<void> HostDispatchMoe::send_to_experts(const Tensor& x, const Tensor& received) const {
  const Tensor tokens = space_.exchange.sent_tokens->rows(0, exchange_.sent_rows());
  const Tensor sent = space_.exchange.sent->rows(0, exchange_.sent_rows());
  ops_.memory().upload(exchange_.sent_tokens(), tokens);
  ops_.dense().gather_rows(x, tokens, sent);
  return exchange_.dispatch(sent, received);
}

void HostDispatchMoe::compute(const Tensor& received, const Tensor& results) const {
  const std::int64_t rows = received[0];
  if (rows == 0) return;
  const std::int64_t inner = down_weight().in_features();
  const ExpertBatch batch{space_.expert_offsets, space_.expert_source->rows(0, rows)};
  const Tensor gate_up = first_rows(space_.gate_up, rows, 2 * inner);
  const Tensor activated = first_rows(space_.activated, rows, inner);
  ops_.memory().upload(exchange_.offsets(), batch.offsets);
  ops_.memory().upload(exchange_.sorted_rows(), batch.source);
  ops_.moe().count_rows(batch, rows_per_expert());
  activate(received, batch, 1, gate_up, activated);
  ops_.moe().grouped_linear(down_weight(), activated, batch, 1, false, true, results);
}

// Sums and combines the experts' outputs for this rank's tokens: out [its tokens, hidden].
Result<void> HostDispatchMoe::bring_back(const Tensor& results, const Tensor& out) const {
  const std::int64_t tokens = out[0];
  const std::int64_t assignments = tokens * router().top_k();
  const Tensor returned = space_.exchange.returned->rows(0, exchange_.sent_rows());
  TROUPE_CHECK(exchange_.combine(results, returned));
  if (tokens == 0) return {};
  Tensor sums = returned;
  if (exchange_.layout().parts > 1) {
    sums = space_.exchange.summed->rows(0, assignments);
    ops_.dense().tree_sum(returned, sums);
  }
  const Tensor order = space_.exchange.rows_of_assignments->rows(0, assignments);
  const Tensor expert_rows = space_.expert_rows->rows(0, assignments);
  ops_.memory().upload(exchange_.rows_of_assignments(), order);
  ops_.dense().gather_rows(sums, order, expert_rows);
  const Tensor weights = space_.expert_weights->rows(0, tokens);
  ops_.moe().combine(expert_rows, weights, out);
  add_output_bias(space_.expert_ids->rows(0, tokens), weights, out);
  return {};
}

}  // namespace troupe
