#include "runtime/control/messages.hpp"

namespace troupe {
namespace {

template <std::size_t index = 0>
Result<ControlMessage> decode_alternative(std::size_t wanted, Decoder& decoder) {
  if constexpr (index == std::variant_size_v<ControlMessage>) {
    return fail(ErrorCode::corrupt_data, "unknown control message {}", wanted);
  } else {
    if (wanted != index) return decode_alternative<index + 1>(wanted, decoder);
    std::variant_alternative_t<index, ControlMessage> message;
    decoder(message);
    TROUPE_CHECK(decoder.finish());
    return ControlMessage(std::move(message));
  }
}

template <class... Messages>
bool is_one_of(const ControlMessage& message) {
  return (std::holds_alternative<Messages>(message) || ...);
}

Result<void> check_protocol(std::span<const std::byte> bytes) {
  Decoder decoder(bytes);
  std::uint8_t index = 0;
  std::uint32_t protocol = 0;
  decoder(index, protocol);
  const bool is_hello = decoder.ok() && index == ControlMessage(AgentReady{}).index();
  if (!is_hello || protocol == control_protocol) return {};
  return fail(ErrorCode::unsupported,
              "the agent speaks control protocol {}, this driver {}: start all processes of a job "
              "from one installation",
              protocol, control_protocol);
}

}  // namespace

bool travels_on(ControlEdge edge, const ControlMessage& message) {
  switch (edge) {
    case ControlEdge::agent_to_driver:
      return is_one_of<AgentReady, ActorStarted, ActorFailed, ActorEnded, ProcessEnded, FollowActor,
                       SpawnRequest, StopOwned, Suspended, Heartbeat, NodeReport, LogLines>(
          message);
    case ControlEdge::driver_to_agent:
      return is_one_of<AgentBootstrap, AgentRefused, StartActor, StopActor, StopProcess, ActorGone,
                       ActorMoved, SpawnReply, Shutdown, Suspend, Resume, Heartbeat, AskProcesses,
                       NodeGone>(message);
    case ControlEdge::process_to_agent:
      return is_one_of<ActorStarted, ActorFailed, ActorEnded, FollowActor, RegionRequest,
                       KeyRequest, CallKeyRequest, SpawnRequest, StopOwned, Heartbeat,
                       ProcessReport>(message);
    case ControlEdge::agent_to_process:
      return is_one_of<ProcessBootstrap, StartActor, StopActor, StopProcess, ActorGone, ActorMoved,
                       RegionReply, KeyReply, SpawnReply, Heartbeat, AskProcesses, NodeGone>(
          message);
  }
  return false;
}

Bytes encode_message(const ControlMessage& message) {
  Encoder encoder;
  encoder.reserve(1024);  // avoids reallocation, which would leave copies of keys in memory
  encoder(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& alternative) { encoder(alternative); }, message);
  return encoder.take();
}

Result<ControlMessage> decode_message(std::span<const std::byte> bytes, ControlEdge edge) {
  Decoder decoder(bytes);
  std::uint8_t index = 0;
  decoder(index);
  if (!decoder.ok()) return fail(ErrorCode::corrupt_data, "an empty control message");
  TROUPE_CHECK(check_protocol(bytes));
  TROUPE_TRY(auto message, decode_alternative(index, decoder));
  if (!travels_on(edge, message)) {
    return fail(ErrorCode::permission_denied, "control message {} is not for this end to send",
                index);
  }
  return message;
}

}  // namespace troupe
