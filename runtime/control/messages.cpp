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

}  // namespace

Bytes encode_message(const ControlMessage& message) {
  Encoder encoder;
  encoder(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& alternative) { encoder(alternative); }, message);
  return encoder.take();
}

Result<ControlMessage> decode_message(std::span<const std::byte> bytes) {
  Decoder decoder(bytes);
  std::uint8_t index = 0;
  decoder(index);
  if (!decoder.ok()) return fail(ErrorCode::corrupt_data, "an empty control message");
  return decode_alternative(index, decoder);
}

}  // namespace troupe
