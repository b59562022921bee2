#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/telemetry/span_recorder.hpp"
#include "actors/worker/collective_log.hpp"
#include "parallel/collectives/replaceable_collectives.hpp"

namespace troupe {

/// Collectives that record each call that waits for other ranks as a span of one kind, note it in a
/// CollectiveLog, and pass all calls on to the inner ones. Calls on the objects that
/// open_overlapped_all_reduce and open_expert_exchange return are not recorded: they only enqueue.
class TimedCollectives final : public ReplaceableCollectives {
 public:
  /// `recorder` outlives the object; it is used on the calling thread. `group`: its name and the
  /// ranks of the mesh in it, for state().
  TimedCollectives(std::shared_ptr<Collectives> inner, SpanRecorder& recorder, SpanKind kind,
                   std::string group = {}, std::vector<int> ranks = {});
  /// What call it is in. Any thread.
  CollectiveState state() const { return log_.state(); }

  void replace(std::shared_ptr<Collectives> inner) override;

  using Collectives::all_reduce_tree;
  Result<void> all_reduce_tree(const Tensor& partial, const Tensor& sum) override;
  Result<void> reduce_scatter_tree(const Tensor& partial, const Tensor& sum,
                                   std::span<const std::int64_t> rows_per_rank) override;
  Result<void> all_gather(const Tensor& part, const Tensor& all,
                          std::span<const std::int64_t> rows_per_rank) override;
  Result<void> broadcast(const Tensor& tensor, int root) override;
  Result<void> all_to_all(const Tensor& send, std::span<const std::int64_t> send_rows,
                          const Tensor& receive,
                          std::span<const std::int64_t> receive_rows) override;
  Result<void> send(const Tensor& tensor, int to) override;
  Result<void> receive(const Tensor& tensor, int from) override;
  Result<void> barrier() override;
  Result<void> all_reduce_rms_norm(const AllReduceRmsNorm& sum) override;
  Result<void> columns_to_rows(const Tensor& part, const Tensor& whole,
                               const Tensor& scratch) override;
  Result<void> library_all_reduce(const Tensor& partial, const Tensor& sum) override;

 private:
  class Call;

  SpanRecorder& recorder_;
  SpanKind kind_;
  CollectiveLog log_;
};

}  // namespace troupe
