#include "parallel/collectives/gloo/gloo_channel.hpp"

#include <algorithm>
#include <cstring>

namespace troupe {

namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t stamp_bytes = sizeof(std::uint64_t);

std::size_t round_up(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// A value that the inbox's memory cannot hold otherwise, from messages or from before.
std::uint64_t stamp(std::uint64_t nonce, std::uint64_t piece) { return nonce + piece; }

}  // namespace

struct GlooChannel::Head {
  CollectiveCall call;
  std::uint64_t bytes;
  std::uint64_t reserved;
};

// A piece in the ring: the message's header (first piece only), bytes, padding, its number.
struct GlooChannel::Piece {
  std::size_t begin;
  std::size_t head;
  std::size_t bytes;
  std::size_t total;

  std::size_t stamp_at() const { return begin + total - stamp_bytes; }
};

GlooChannel::Piece GlooChannel::next_piece(std::uint64_t position, bool begun,
                                           std::size_t left) const {
  const std::size_t begin = position % mesh_.room();
  const std::size_t head = begun ? 0 : sizeof(Head);
  const std::size_t most =
      std::min(piece_bytes(mesh_.room()), mesh_.room() - begin) - stamp_bytes - head;
  const std::size_t bytes = std::min(left, most);
  return {begin, head, bytes, round_up(head + bytes + stamp_bytes)};
}

Result<void> GlooChannel::push(Outgoing& message, const CollectiveCall& call) {
  const std::size_t room = mesh_.room();
  const Piece piece = next_piece(written_, message.begun, message.bytes.size() - message.done);
  while (room - (written_ - credited_) < piece.total) {
    TROUPE_CHECK(mesh_.wait_credit(peer_, lane_));
    credited_ += piece_bytes(room);
  }
  int arrived = 0;
  for (; !put_ends_.empty() && put_ends_.front() <= credited_; ++arrived) put_ends_.pop_front();
  TROUPE_CHECK(mesh_.reap(peer_, lane_, arrived));

  std::byte* to = mesh_.outbox(peer_, lane_).data();
  if (!message.begun) {
    const Head head{call, message.bytes.size(), 0};
    std::memcpy(to + piece.begin, &head, sizeof(head));
  }
  if (piece.bytes > 0) {
    std::memcpy(to + piece.begin + piece.head, message.bytes.data() + message.done, piece.bytes);
  }
  const std::uint64_t number = stamp(mesh_.own_nonce(), pieces_written_);
  std::memcpy(to + piece.stamp_at(), &number, sizeof(number));
  TROUPE_CHECK(mesh_.put(peer_, lane_, piece.begin, piece.total));

  message.begun = true;
  message.done += piece.bytes;
  written_ += piece.total;
  ++pieces_written_;
  put_ends_.push_back(written_);
  return {};
}

Result<void> GlooChannel::pull(Incoming& message, const CollectiveCall& call) {
  const std::byte* from = mesh_.inbox(peer_, lane_).data();
  const Piece piece = next_piece(taken_, message.begun, message.bytes.size() - message.done);
  if (auto waited = mesh_.wait_put(peer_, lane_); !waited) {
    // The piece may have arrived before the connection ended. Nobody writes to the inbox any more.
    std::uint64_t number = 0;
    std::memcpy(&number, from + piece.stamp_at(), sizeof(number));
    if (number != stamp(mesh_.nonce(peer_), pieces_taken_)) return waited;
  }
  if (!message.begun) {
    Head head;
    std::memcpy(&head, from + piece.begin, sizeof(head));
    TROUPE_CHECK(check_head(head, message, call));
  }
  if (piece.bytes > 0) {
    std::memcpy(message.bytes.data() + message.done, from + piece.begin + piece.head, piece.bytes);
  }
  message.begun = true;
  message.done += piece.bytes;
  taken_ += piece.total;
  ++pieces_taken_;
  for (; given_ < taken_ / piece_bytes(mesh_.room()); ++given_) {
    // Only a living sender needs the credit; if it is gone, the next wait reports that.
    if (!mesh_.give_credit(peer_, lane_)) break;
  }
  return {};
}

Result<void> GlooChannel::check_head(const Head& head, const Incoming& message,
                                     const CollectiveCall& call) const {
  if (head.call != call) {
    return fail(ErrorCode::invalid_argument, "collectives: rank {} calls {}, but rank {} calls {}",
                mesh_.rank(), describe(call), peer_, describe(head.call));
  }
  if (head.bytes != message.bytes.size()) {
    return fail(ErrorCode::invalid_argument,
                "collectives: {}: rank {} sends {} bytes to rank {}, which expects {}",
                describe(call), peer_, head.bytes, mesh_.rank(), message.bytes.size());
  }
  return {};
}

}  // namespace troupe
