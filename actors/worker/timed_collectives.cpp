#include "actors/worker/timed_collectives.hpp"

#include <numeric>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

/// `ranks`, or those of the communicator itself.
std::vector<int> ranks_of(const Collectives& inner, std::vector<int> ranks) {
  if (!ranks.empty()) return ranks;
  ranks.resize(static_cast<std::size_t>(inner.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

/// One call that waits for others, while it lives.
class TimedCollectives::Call {
 public:
  explicit Call(TimedCollectives& of) : span_(&of.recorder_, of.kind_), log_(of.log_) {}
  Call(TimedCollectives& of, std::string_view op, std::size_t bytes) : Call(of) {
    log_.begin(op, bytes);
  }
  ~Call() { log_.end(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  CollectiveLog& log() { return log_; }

 private:
  SpanScope span_;
  CollectiveLog& log_;
};

TimedCollectives::TimedCollectives(std::shared_ptr<Collectives> inner, SpanRecorder& recorder,
                                   SpanKind kind, std::string group, std::vector<int> ranks)
    : ReplaceableCollectives(inner),
      recorder_(recorder),
      kind_(kind),
      log_(std::move(group), ranks_of(*inner, std::move(ranks))) {}

void TimedCollectives::replace(std::shared_ptr<Collectives> inner) {
  ReplaceableCollectives::replace(std::move(inner));
  log_.restart();
}

Result<void> TimedCollectives::all_reduce_tree(const Tensor& partial, const Tensor& sum) {
  const Call call(*this, "all_reduce", partial.bytes());
  return ReplaceableCollectives::all_reduce_tree(partial, sum);
}

Result<void> TimedCollectives::reduce_scatter_tree(const Tensor& partial, const Tensor& sum,
                                                   std::span<const std::int64_t> rows_per_rank) {
  const Call call(*this, "reduce_scatter", partial.bytes());
  return ReplaceableCollectives::reduce_scatter_tree(partial, sum, rows_per_rank);
}

Result<void> TimedCollectives::all_gather(const Tensor& part, const Tensor& all,
                                          std::span<const std::int64_t> rows_per_rank) {
  const Call call(*this, "all_gather", part.bytes());
  return ReplaceableCollectives::all_gather(part, all, rows_per_rank);
}

Result<void> TimedCollectives::broadcast(const Tensor& tensor, int root) {
  const Call call(*this, "broadcast", tensor.bytes());
  return ReplaceableCollectives::broadcast(tensor, root);
}

Result<void> TimedCollectives::all_to_all(const Tensor& send,
                                          std::span<const std::int64_t> send_rows,
                                          const Tensor& receive,
                                          std::span<const std::int64_t> receive_rows) {
  const Call call(*this, "all_to_all", send.bytes());
  return ReplaceableCollectives::all_to_all(send, send_rows, receive, receive_rows);
}

Result<void> TimedCollectives::send(const Tensor& tensor, int to) {
  Call call(*this);
  call.log().begin_send(tensor.bytes(), to);
  return ReplaceableCollectives::send(tensor, to);
}

Result<void> TimedCollectives::receive(const Tensor& tensor, int from) {
  Call call(*this);
  call.log().begin_receive(tensor.bytes(), from);
  return ReplaceableCollectives::receive(tensor, from);
}

Result<void> TimedCollectives::barrier() {
  const Call call(*this, "barrier", 0);
  return ReplaceableCollectives::barrier();
}

Result<void> TimedCollectives::all_reduce_rms_norm(const AllReduceRmsNorm& sum) {
  const Call call(*this, "all_reduce_rms_norm", sum.partial.bytes());
  return ReplaceableCollectives::all_reduce_rms_norm(sum);
}

Result<void> TimedCollectives::columns_to_rows(const Tensor& part, const Tensor& whole,
                                               const Tensor& scratch) {
  const Call call(*this, "columns_to_rows", part.bytes());
  return ReplaceableCollectives::columns_to_rows(part, whole, scratch);
}

Result<void> TimedCollectives::library_all_reduce(const Tensor& partial, const Tensor& sum) {
  const Call call(*this, "library_all_reduce", partial.bytes());
  return ReplaceableCollectives::library_all_reduce(partial, sum);
}

}  // namespace troupe
