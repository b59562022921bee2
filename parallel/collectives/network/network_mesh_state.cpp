#include "parallel/collectives/network/network_mesh_state.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace troupe {

namespace {

constexpr std::chrono::milliseconds goodbye_limit{200};

}  // namespace

LinkFrame NetworkMesh::State::small_frame(FrameKind kind, std::uint32_t lane_or_notice,
                                          std::uint64_t bytes) {
  const FrameHead head{kind, lane_or_notice, bytes};
  const auto frame = std::as_bytes(std::span(&head, 1));
  return LinkFrame(std::vector<std::byte>(frame.begin(), frame.end()));
}

int NetworkMesh::State::connecting_rank(const LinkPeer& peer, int rank, int size) {
  int found = -1;
  std::from_chars(peer.name.data(), peer.name.data() + peer.name.size(), found);
  return found > rank && found < size && peer == link_peer(found) ? found : -1;
}

NetworkMesh::State::~State() {
  if (!loop) return;
  take_leave();
  loop->stop();  // its events refer to this
}

// Notices go after all that was put, and a link closes without sending what is queued.
void NetworkMesh::State::take_leave() {
  const BlockingScope waits;
  LinkTurn turn(*loop);
  std::unique_lock lock(mutex);
  close(std::nullopt, connected ? ShutdownNotice::left : ShutdownNotice::aborted);
  const auto have_left = [&] {
    return std::ranges::all_of(peers, [](const Peer& peer) { return peer.gone || !peer.link; });
  };
  Deadline goodbye = deadline_in(goodbye_limit);
  while (!have_left() && !goodbye.is_over()) await_news(lock, turn, goodbye.next_look());
}

LinkEvents NetworkMesh::State::events_of(int connected_to) {
  return {
      .on_open =
          [this, connected_to](const std::shared_ptr<TlsLink>& link) {
            on_open(link,
                    connected_to < 0 ? connecting_rank(link->peer(), rank, size) : connected_to);
          },
      .on_frame = [this](const std::shared_ptr<TlsLink>& link,
                         std::vector<std::byte>& frame) { on_frame(link, frame); },
      .on_closed = [this, connected_to](const std::shared_ptr<TlsLink>& link,
                                        const Error& why) { on_closed(link, connected_to, why); }};
}

void NetworkMesh::State::on_open(const std::shared_ptr<TlsLink>& link, int peer) {
  const std::lock_guard lock(mutex);
  if (peer < 0 || at(peer).link) return link->close();  // a second link of the same rank
  at(peer).link = link;
  if (closing) (void)link->post(notice_frame(ShutdownNotice::aborted));
}

int NetworkMesh::State::rank_of(const TlsLink* link) const {
  const auto found =
      std::ranges::find(peers, link, [](const Peer& peer) { return peer.link.get(); });
  return found == peers.end() ? -1 : static_cast<int>(found - peers.begin());
}

void NetworkMesh::State::on_frame(const std::shared_ptr<TlsLink>& link,
                                  std::vector<std::byte>& frame) {
  const std::lock_guard lock(mutex);
  const int from = rank_of(link.get());
  if (from < 0) return;
  FrameHead head{};
  const bool whole = frame.size() >= sizeof(head);
  if (whole) std::memcpy(&head, frame.data(), sizeof(head));
  if (!whole || !accept(from, head, frame)) {
    close(fail(ErrorCode::corrupt_data,
               "collectives: rank {} of {}: rank {} sent a frame of {} bytes that it may not", rank,
               size, from, frame.size()));
  }
}

// False for a frame that no rank sends.
bool NetworkMesh::State::accept(int from, const FrameHead& head, std::vector<std::byte>& frame) {
  Peer& peer = at(from);
  if (head.kind == FrameKind::notice) {
    peer.gone = true;
    if (head.lane_or_notice == static_cast<std::uint32_t>(ShutdownNotice::aborted))
      close(std::nullopt);
    return true;
  }
  if (head.lane_or_notice >= lane_count) return false;
  LaneEnds& ends = peer.lanes[head.lane_or_notice];
  if (head.kind == FrameKind::credit) {
    if (head.bytes > ends.uncredited) return false;
    ends.uncredited -= head.bytes;
    return true;
  }
  if (head.kind != FrameKind::piece || head.bytes != frame.size()) return false;
  if (frame.size() > room - ends.held) return false;
  ends.held += frame.size();
  ends.arrived.push_back(buffers->own(std::exchange(frame, buffers->take())));
  return true;
}

void NetworkMesh::State::on_closed(const std::shared_ptr<TlsLink>& link, int connected_to,
                                   const Error& why) {
  const std::lock_guard lock(mutex);
  const int open = rank_of(link.get());
  const int peer = open >= 0 ? open : connected_to;
  if (peer < 0 || at(peer).gone) return;
  at(peer).gone = true;
  close(open >= 0 ? fail(ErrorCode::peer_died,
                         "collectives: rank {} of {} lost the connection to rank {}: {}", rank,
                         size, peer, why.message)
                  : fail(why.code, "collectives: rank {} of {} cannot connect to rank {}: {}", rank,
                         size, peer, why.message));
}

// Requires the mutex, as do the following.
void NetworkMesh::State::close(std::optional<Error> why, ShutdownNotice notice) {
  if (closing) return;
  closing = true;
  why_closing = std::move(why);
  if (on_closing && notice == ShutdownNotice::aborted) on_closing();
  for (const Peer& peer : peers) {
    // One whose link has ended needs no notice.
    if (peer.link) (void)peer.link->post(notice_frame(notice));
  }
}

Error NetworkMesh::State::cause() const {
  if (why_closing) return *why_closing;
  return fail(ErrorCode::cancelled, "collectives: rank {} of {}: the group was aborted", rank,
              size);
}

void NetworkMesh::State::await_news(std::unique_lock<std::mutex>& lock, LinkTurn& turn,
                                    Deadline::Clock::time_point until) {
  lock.unlock();
  turn.step(until);
  lock.lock();
}

// Takes the mutex itself.
Result<void> NetworkMesh::State::post(int peer, Lane lane, LinkFrame piece) {
  const std::size_t bytes = piece.size();
  LinkTurn turn(*loop);
  std::unique_lock lock(mutex);
  LaneEnds& lane_ends = ends(peer, lane);
  const Peer& other = at(peer);
  TROUPE_CHECK(
      wait(lock, turn, peer, [&] { return !other.gone && lane_ends.uncredited + bytes <= room; }));
  lane_ends.uncredited += bytes;
  const auto link = other.link;
  lock.unlock();
  (void)link->post(std::move(piece));  // on_closed reports a link that has ended
  return {};
}

}  // namespace troupe
