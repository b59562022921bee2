#include "runtime/call/call_frame.hpp"

#include <cstring>

namespace troupe {

ErrorCode Trailer::error_code() const {
  if (status == actor_has_left) return ErrorCode::actor_died;
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

namespace {

Result<void> send_once(Link& link, CallId call, std::uint32_t incarnation,
                       const CallAnswer& answer) {
  Trailer trailer{.call = call, .kind = FrameKind::answer, .incarnation = incarnation};
  if (answer.ok()) return send_frame(link, *answer, trailer, answer_timeout);
  const Error& error = answer.error();
  trailer.status = answer.actor_has_ended() ? actor_has_left : status_of(error.code);
  return send_frame(link, std::as_bytes(std::span(error.message)), trailer, answer_timeout);
}

}  // namespace

void send_answer(Link& link, CallId call, std::uint32_t incarnation, const CallAnswer& answer) {
  const auto sent = send_once(link, call, incarnation, answer);
  if (sent.ok() || sent.error().code == ErrorCode::peer_died) return;
  if (sent.error().code == ErrorCode::invalid_argument) {  // only this caller is affected
    const Error refusal =
        fail(ErrorCode::invalid_argument, "the answer was not sent: {}", sent.error().message);
    if (send_once(link, call, incarnation, refusal).ok()) return;
  }
  link.close();
}

}  // namespace troupe
