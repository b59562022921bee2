#include "actors/worker/step_plane.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include "actors/api/request.hpp"
#include "runtime/base/log.hpp"
#include "runtime/memory/shared_memory.hpp"

namespace troupe {
namespace {

constexpr auto fan_out_timeout = std::chrono::seconds(30);

/// Half of the ring must hold the largest plan: the prompts that one step starts (a budget's worth
/// and one that is split), the parameters of its sequences, and its new blocks.
std::size_t ring_bytes(const WorkerSpec& spec) {
  const std::int64_t tokens = spec.max_batch_tokens + spec.max_model_len;
  const auto parameters = static_cast<std::int64_t>(max_sampling_numbers * 4 + 512);
  return 2 * static_cast<std::size_t>(tokens * 8 + spec.max_head_rows * parameters +
                                      (std::int64_t{8} << 20));
}

Result<Channel> listen(ActorContext& context, std::int32_t rank, std::uint32_t epoch,
                       const ExecutorPlace& executor, StepDirection direction) {
  const ChannelScope scope = step_channel_scope(epoch, executor.name, rank, direction);
  TROUPE_TRY(const Key key, context.channel_key(scope));
  const bool is_near = executor.node.empty() || executor.node == context.node();
  return Channel::listen(
      ChannelKeys::derive(key, scope.purpose),
      is_near ? ChannelEndpoint::on_this_node(executor.pid)
              : ChannelEndpoint::on_network(context.node_address(), context.ports()));
}

/// The ranks of the replica of `spec.rank` that are on its node, ascending.
std::vector<int> replica_ranks_here(const WorkerSpec& spec, const Mesh& mesh) {
  const int workers = mesh.world_size() / mesh.shape().data;
  const int first = mesh.rank({.data = mesh.coordinates(spec.rank).data});
  std::vector<int> ranks(static_cast<std::size_t>(workers));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks_here(spec, ranks);
}

}  // namespace

Result<StepPlane> StepPlane::open(ActorContext& context, const WorkerSpec& spec,
                                  std::uint32_t epoch, const ExecutorPlace& executor) {
  TROUPE_TRY(const Mesh mesh, mesh_of(spec));
  const std::vector<int> ranks = replica_ranks_here(spec, mesh);
  const bool takes_plans = spec.rank == ranks.front();

  StepPlane plane;
  plane.answers_ = answers_steps(mesh, spec.rank);
  if (takes_plans) {
    TROUPE_TRY(plane.plans_, listen(context, spec.rank, epoch, executor, StepDirection::plans));
  } else if (plane.answers_) {
    TROUPE_TRY(plane.results_, listen(context, spec.rank, epoch, executor, StepDirection::results));
  }
  if (ranks.size() > 1) TROUPE_CHECK(plane.open_fan_out(context, spec, epoch, ranks));
  return plane;
}

Result<void> StepPlane::open_fan_out(ActorContext& context, const WorkerSpec& spec,
                                     std::uint32_t epoch, std::span<const int> ranks) {
  const int readers = static_cast<int>(ranks.size()) - 1;
  const auto index = static_cast<int>(std::ranges::find(ranks, spec.rank) - ranks.begin());
  region_ = fmt::format("{}/steps from rank {}/", epoch_name(epoch), ranks.front());
  TROUPE_TRY(UniqueFd fd,
             context.shared_memory(region_, shm_broadcast_bytes(readers, ring_bytes(spec))));
  TROUPE_TRY(SharedMemory region, SharedMemory::map(std::move(fd)));
  if (index == 0) {
    TROUPE_TRY(fan_out_, ShmBroadcastWriter::attach(std::move(region), readers));
  } else {
    TROUPE_TRY(reader_, ShmBroadcastReader::attach(std::move(region), readers, index - 1));
  }
  return {};
}

StepAddresses StepPlane::addresses() const {
  return {plans_ ? plans_->address() : "", results_ ? results_->address() : ""};
}

Result<StepPlan> StepPlane::receive(Deadline deadline) {
  if (reader_) {
    TROUPE_TRY(const auto bytes, reader_->receive(deadline));
    return decode_plan(bytes);
  }
  TROUPE_TRY(const Message message, plans_->receive(deadline));
  if (fan_out_) {
    const auto sent = fan_out_->send(message.bytes(), deadline_in(fan_out_timeout));
    // A plan that others did not get is lost: do not return timeout, which the caller may take for
    // idleness.
    if (!sent.ok() && sent.error().code == ErrorCode::timed_out) {
      return fail(ErrorCode::internal, "the other workers of this node took no plan for {} s",
                  std::chrono::seconds(fan_out_timeout).count());
    }
    TROUPE_CHECK(sent);
  }
  return decode_plan(message.bytes());
}

Result<void> StepPlane::answer(const StepResult& result, Deadline deadline) {
  auto& channel = results_ ? results_ : plans_;
  if (!answers_) return {};
  TROUPE_TRY(const auto bytes, encoder_.encode(result));
  return channel->send(bytes, deadline);
}

void StepPlane::interrupt() {
  for (auto* channel : {&plans_, &results_}) {
    if (*channel) (*channel)->interrupt();
  }
  if (fan_out_) fan_out_->interrupt();
  if (reader_) reader_->interrupt();
}

void StepPlane::release(ActorContext& context) const {
  if (region_.empty()) return;
  const Result<void> released = context.release_shared_memory(region_);
  if (!released.ok()) log::debug("memory of {}: {}", region_, released.error().message);
}

}  // namespace troupe
