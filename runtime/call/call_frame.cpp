#include "runtime/call/call_frame.hpp"

#include <cstring>

namespace troupe {

ErrorCode Trailer::error_code() const {
  if (status == actor_has_left) return ErrorCode::peer_died;
  const auto code = static_cast<ErrorCode>(status - 1);
  return code > ErrorCode::internal ? ErrorCode::internal : code;
}

std::optional<Trailer> take_trailer(Bytes& frame) {
  Trailer trailer;
  if (frame.size() < sizeof trailer) return std::nullopt;
  std::memcpy(&trailer, frame.data() + frame.size() - sizeof trailer, sizeof trailer);
  frame.resize(frame.size() - sizeof trailer);
  return trailer;
}

Result<void> send_frame(Link& link, std::span<const std::byte> body, const Trailer& trailer,
                        std::chrono::nanoseconds wait) {
  return link.send(body, std::as_bytes(std::span(&trailer, 1)), wait);
}

Result<void> send_answer(Link& link, CallId call, const Result<Bytes>& result,
                         std::uint8_t failure) {
  Trailer trailer{.call = call, .kind = FrameKind::answer};
  if (result.ok()) return send_frame(link, *result, trailer, answer_timeout);
  const Error& error = result.error();
  trailer.status = failure == 0 ? status_of(error.code) : failure;
  return send_frame(link, std::as_bytes(std::span(error.message)), trailer, answer_timeout);
}

}  // namespace troupe
