#include "actors/worker/step_plane.hpp"

#include <chrono>
#include <optional>
#include <utility>

#include "actors/engine/request.hpp"
#include "runtime/memory/shared_memory.hpp"

namespace troupe {
namespace {

constexpr auto fan_out_timeout = std::chrono::seconds(30);

/// Half of the ring must hold the largest plan: the prompts that one step starts (a budget's worth
/// and one that is cut), the parameters of its sequences, and its new blocks.
std::size_t ring_bytes(const WorkerSpec& spec) {
  const std::int64_t tokens = spec.max_batch_tokens + spec.max_model_len;
  const auto parameters = static_cast<std::int64_t>(max_stop_token_ids * 4 + 512);
  return 2 * static_cast<std::size_t>(tokens * 8 + spec.max_head_rows * parameters +
                                      (std::int64_t{8} << 20));
}

/// Receives from the executor, passes each plan on within the node, and answers.
class FirstOfNode final : public StepPlane {
 public:
  FirstOfNode(Channel channel, std::optional<ShmBroadcastWriter> fan_out)
      : channel_(std::move(channel)), fan_out_(std::move(fan_out)) {}

  std::string address() const override { return channel_.address(); }

  Result<StepPlan> receive(Deadline deadline) override {
    TROUPE_TRY(const Message message, channel_.receive(deadline));
    if (fan_out_) TROUPE_CHECK(fan_out_->send(message.bytes(), deadline_in(fan_out_timeout)));
    return decode_plan(message.bytes());
  }

  Result<void> answer(const StepResult& result, Deadline deadline) override {
    TROUPE_TRY(const auto bytes, encoder_.encode(result));
    return channel_.send(bytes, deadline);
  }

  void interrupt() override {
    channel_.interrupt();
    if (fan_out_) fan_out_->interrupt();
  }

 private:
  Channel channel_;
  std::optional<ShmBroadcastWriter> fan_out_;
  StepEncoder encoder_;
};

/// Takes plans from the node's first worker.
class OtherOfNode final : public StepPlane {
 public:
  explicit OtherOfNode(ShmBroadcastReader reader) : reader_(std::move(reader)) {}

  std::string address() const override { return {}; }
  Result<StepPlan> receive(Deadline deadline) override {
    TROUPE_TRY(const auto bytes, reader_.receive(deadline));
    return decode_plan(bytes);
  }
  Result<void> answer(const StepResult&, Deadline) override { return {}; }
  void interrupt() override { reader_.interrupt(); }

 private:
  ShmBroadcastReader reader_;
};

}  // namespace

std::string group_name(std::uint32_t epoch, std::int32_t replica) {
  return fmt::format("epoch {}/replica {}", epoch, replica);
}

std::string step_channel_purpose(std::uint32_t epoch, std::int32_t replica) {
  return "step plane/" + group_name(epoch, replica);
}

Result<std::unique_ptr<StepPlane>> StepPlane::open(ActorContext& context, const WorkerSpec& spec) {
  const int readers = spec.tensor_parallel_size - 1;
  SharedMemory region;
  if (readers > 0) {
    TROUPE_TRY(UniqueFd fd, context.shared_memory(group_name(spec.epoch, spec.replica) + "/steps",
                                                  shm_broadcast_bytes(readers, ring_bytes(spec))));
    TROUPE_TRY(region, SharedMemory::map(std::move(fd)));
  }
  if (spec.tensor_rank > 0) {
    TROUPE_TRY(auto reader,
               ShmBroadcastReader::attach(std::move(region), readers, spec.tensor_rank - 1));
    return std::unique_ptr<StepPlane>(std::make_unique<OtherOfNode>(std::move(reader)));
  }
  std::optional<ShmBroadcastWriter> fan_out;
  if (readers > 0) {
    TROUPE_TRY(fan_out, ShmBroadcastWriter::attach(std::move(region), readers));
  }
  const auto purpose = step_channel_purpose(spec.epoch, spec.replica);
  TROUPE_TRY(auto channel,
             Channel::listen(ChannelKeys::derive(context.keys().derive(purpose), purpose),
                             ChannelEndpoint::on_this_node()));
  return std::unique_ptr<StepPlane>(
      std::make_unique<FirstOfNode>(std::move(channel), std::move(fan_out)));
}

}  // namespace troupe
