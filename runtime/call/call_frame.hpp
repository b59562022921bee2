#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/base/result.hpp"
#include "runtime/call/actor_address.hpp"
#include "runtime/call/call_terms.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/call/incoming_call.hpp"
#include "runtime/call/transport.hpp"

namespace troupe {

using CallId = std::uint64_t;

/// Identifies a process as a caller, by chance alone.
using CallerId = std::uint64_t;

enum class FrameKind : std::uint8_t {
  call = 1,
  answer = 2,
  resendable_call = 3,  ///< a call that may come again on a later link, and runs once all the same
  hello = 4,            ///< the first frame of whoever opened the link
  cancel = 5,
  acknowledge = 6,  ///< the body is a row of CallIds that are over: nobody waits for their answers
};

/// The status of an answer for an actor that is not in its process any more.
inline constexpr std::uint8_t actor_has_left = 255;

/// The status of an answer that is an error.
constexpr std::uint8_t status_of(ErrorCode code) {
  return static_cast<std::uint8_t>(1 + static_cast<int>(code));
}

/// Fields that follow the body of a frame (after it, so that the body need not be moved).
struct Trailer {
  /// Numbers the caller's calls, to all actors. In a hello: all of its resendable calls with
  /// smaller numbers are over.
  CallId call = 0;
  ActorId actor = 0;         ///< in a call; in a hello the CallerId
  std::uint16_t method = 0;  ///< in a call
  /// In an answer: 0, status_of an error or actor_has_left; the body is then its message.
  std::uint8_t status = 0;
  FrameKind kind = FrameKind::call;
  std::uint32_t remaining_ms = 0;  ///< in a call: until its deadline; 0: it has none
  /// In a hello: counts the caller's links. In a resendable call: of the link on which it was sent
  /// first.
  std::uint32_t generation = 0;
  /// In a call: of its actor, as the caller knows it. In an answer: the same, of the call.
  std::uint32_t incarnation = 0;

  /// The error that the status of an answer stands for.
  ErrorCode error_code() const;
};
static_assert(sizeof(Trailer) == 32);

/// Takes the trailer off the frame's end, which leaves the body; nothing if the frame is too short.
std::optional<Trailer> take_trailer(Bytes& frame);

/// Sends a frame. `wait` and errors: those of Link::send.
Result<void> send_frame(Link& link, std::span<const std::byte> body, const Trailer& trailer,
                        std::chrono::nanoseconds wait);

/// Waits so long for a peer that reads no answers; it is given up then.
inline constexpr std::chrono::seconds answer_timeout{10};

/// Sends the answer to a call, within answer_timeout. One that is too large is replaced by an
/// error; a link that takes none for so long is closed, as its peer would wait for ever.
void send_answer(Link& link, CallId call, std::uint32_t incarnation, const CallAnswer& answer);

}  // namespace troupe
