#include "parallel/collectives/network/network_channel.hpp"

#include <algorithm>
#include <cstring>

namespace troupe {

struct NetworkChannel::Head {
  CollectiveCall call;
  std::uint64_t bytes;
};

Result<void> NetworkChannel::push(Outgoing& message, const CollectiveCall& call) {
  const Head first{call, message.bytes.size()};
  const auto head =
      message.begun ? std::span<const std::byte>() : std::as_bytes(std::span(&first, 1));
  const std::size_t bytes =
      std::min(message.bytes.size() - message.done, mesh_.piece_bytes() - head.size());
  const auto piece = message.bytes.subspan(message.done, bytes);
  // A message outlives its call; what a collective lends is sent or copied at its end.
  TROUPE_CHECK(lane_ == NetworkMesh::Lane::message ? mesh_.put(peer_, lane_, head, piece)
                                                   : mesh_.lend(peer_, lane_, head, piece));
  message.begun = true;
  message.done += bytes;
  return {};
}

Result<void> NetworkChannel::pull(Incoming& message, const CollectiveCall& call) {
  TROUPE_TRY(const NetworkMesh::Piece piece, mesh_.take(peer_, lane_));
  std::span<const std::byte> bytes = piece.bytes();
  if (!message.begun) {
    Head head;
    if (bytes.size() < sizeof(head)) return wrong_piece(bytes.size());
    std::memcpy(&head, bytes.data(), sizeof(head));
    TROUPE_CHECK(check_head(head, message, call));
    bytes = bytes.subspan(sizeof(head));
  }
  const std::size_t left = message.bytes - message.done;
  if (bytes.size() > left || (bytes.empty() && left > 0)) return wrong_piece(bytes.size());
  if (message.use) {
    if (bytes.size() % sizeof(float) != 0) return wrong_piece(bytes.size());
    static_assert(sizeof(Head) % alignof(float) == 0);  // as is the frame's head, before it
    message.use(message.done / sizeof(float),
                {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)});
  } else if (!bytes.empty()) {
    std::memcpy(message.room + message.done, bytes.data(), bytes.size());
  }
  message.begun = true;
  message.done += bytes.size();
  return {};
}

Error NetworkChannel::wrong_piece(std::size_t bytes) const {
  return fail(ErrorCode::corrupt_data,
              "collectives: rank {}: rank {} sent a piece of {} bytes that fits no message",
              mesh_.rank(), peer_, bytes);
}

Result<void> NetworkChannel::check_head(const Head& head, const Incoming& message,
                                        const CollectiveCall& call) const {
  if (head.call != call) {
    return fail(ErrorCode::invalid_argument, "collectives: rank {} calls {}, but rank {} calls {}",
                mesh_.rank(), describe(call), peer_, describe(head.call));
  }
  if (head.bytes != message.bytes) {
    return fail(ErrorCode::invalid_argument,
                "collectives: {}: rank {} sends {} bytes to rank {}, which expects {}",
                describe(call), peer_, head.bytes, mesh_.rank(), message.bytes);
  }
  return {};
}

}  // namespace troupe
