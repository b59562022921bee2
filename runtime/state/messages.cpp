#include "runtime/state/messages.hpp"

namespace troupe {
namespace {

template <class Message>
Bytes encode_any(const Message& message) {
  Encoder encoder;
  encoder(state_protocol, static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& alternative) { encoder(alternative); }, message);
  return encoder.take();
}

template <class Message, std::size_t index = 0>
Result<Message> decode_alternative(std::size_t wanted, Decoder& decoder) {
  if constexpr (index == std::variant_size_v<Message>) {
    return fail(ErrorCode::corrupt_data, "unknown state message {}", wanted);
  } else {
    if (wanted != index) return decode_alternative<Message, index + 1>(wanted, decoder);
    std::variant_alternative_t<index, Message> message;
    decoder(message);
    TROUPE_CHECK(decoder.finish());
    return Message(std::move(message));
  }
}

template <class Message>
Result<Message> decode_any(std::span<const std::byte> bytes) {
  Decoder decoder(bytes);
  std::uint32_t protocol = 0;
  std::uint8_t index = 0;
  decoder(protocol, index);
  if (!decoder.ok()) return fail(ErrorCode::corrupt_data, "a state message that is too short");
  if (protocol != state_protocol) {
    return fail(ErrorCode::unsupported, "a state message of protocol {}, this program has {}",
                protocol, state_protocol);
  }
  return decode_alternative<Message>(index, decoder);
}

}  // namespace

bool is_change(const StateRequest& request) {
  return std::holds_alternative<AskDrain>(request) || std::holds_alternative<AskJoin>(request);
}

Bytes encode_request(const StateRequest& request) { return encode_any(request); }
Bytes encode_reply(const StateReply& reply) { return encode_any(reply); }
Result<StateRequest> decode_request(std::span<const std::byte> bytes) {
  return decode_any<StateRequest>(bytes);
}
Result<StateReply> decode_reply(std::span<const std::byte> bytes) {
  return decode_any<StateReply>(bytes);
}

}  // namespace troupe
