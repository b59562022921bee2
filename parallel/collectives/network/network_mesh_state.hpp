#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "parallel/collectives/network/frame_buffers.hpp"
#include "parallel/collectives/network/network_mesh.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/link/link.hpp"

namespace troupe {

/// What a NetworkMesh shares with the thread of its links: the other ranks' links and lanes, and
/// why the group has ended. The links' events come from that thread or from the one that waits.
struct NetworkMesh::State {
  static constexpr int lane_count = 2;
  // How long a wait goes on when the group is closing or a peer is gone: what is under way from
  // others still gets through.
  static constexpr std::chrono::milliseconds last_word_grace{10};

  enum class FrameKind : std::uint32_t { piece = 1, credit, notice };

  // The notice that a rank sends before it closes its links.
  enum class ShutdownNotice : std::uint32_t { aborted = 1, left };

  // The beginning of every frame.
  struct FrameHead {
    FrameKind kind;
    std::uint32_t lane_or_notice;  // by kind: a lane, or a ShutdownNotice
    std::uint64_t bytes;           // of the piece's frame, or of the credit
  };

  static LinkFrame small_frame(FrameKind kind, std::uint32_t lane_or_notice,
                               std::uint64_t bytes = 0);
  static LinkFrame notice_frame(ShutdownNotice notice) {
    return small_frame(FrameKind::notice, static_cast<std::uint32_t>(notice));
  }

  // What the ranks are called on their links.
  static LinkPeer link_peer(int rank) { return {"rank", std::to_string(rank)}; }
  // The rank of a link_peer() above `rank`, which connects to it; -1 for anybody else.
  static int connecting_rank(const LinkPeer& peer, int rank, int size);

  // Both directions of a lane between two ranks, as this one sees it. Bytes are of whole frames.
  struct LaneEnds {
    std::uint64_t uncredited = 0;  // put, and not known to be taken
    std::deque<std::shared_ptr<const FrameBuffers::Buffer>> arrived;  // not taken
    std::uint64_t held = 0;   // arrived, and not credited to the peer
    std::uint64_t taken = 0;  // of those, taken
  };

  struct Peer {
    std::array<LaneEnds, lane_count> lanes;
    std::shared_ptr<TlsLink> link;  // once open
    bool gone = false;              // sent a notice, or was lost
  };

  ~State();
  LinkEvents events_of(int connected_to);
  void on_open(const std::shared_ptr<TlsLink>& link, int peer);
  void on_frame(const std::shared_ptr<TlsLink>& link, std::vector<std::byte>& frame);
  void on_closed(const std::shared_ptr<TlsLink>& link, int connected_to, const Error& why);
  int rank_of(const TlsLink* link) const;
  bool accept(int from, const FrameHead& head, std::vector<std::byte>& frame);

  void close(std::optional<Error> why, ShutdownNotice notice = ShutdownNotice::aborted);
  Error cause() const;
  // Runs the loop, which wants the mutex, until something has happened or until `until`. The caller
  // has announced that it waits (BlockingScope).
  void await_news(std::unique_lock<std::mutex>& lock, LinkTurn& turn,
                  Deadline::Clock::time_point until);
  template <class Ready>
  Result<void> wait(std::unique_lock<std::mutex>& lock, LinkTurn& turn, int peer,
                    const Ready& ready);
  Result<void> post(int peer, Lane lane, LinkFrame piece);
  void take_leave();

  bool has_room(int peer, Lane lane) {
    return !at(peer).gone && ends(peer, lane).uncredited + piece_bytes <= room;
  }
  Peer& at(int peer) { return peers[static_cast<std::size_t>(peer)]; }
  LaneEnds& ends(int peer, Lane lane) { return at(peer).lanes[static_cast<std::size_t>(lane)]; }

  int rank = 0;
  int size = 0;
  std::size_t room = 0;
  std::size_t piece_bytes = 0;
  std::string address;
  std::uint16_t port = 0;
  std::optional<JobKeys> keys;
  // Of the calling thread.
  std::chrono::milliseconds timeout = std::chrono::seconds(1);
  Deadline deadline{std::chrono::seconds(1)};

  std::mutex mutex;  // guards the members below; the link's is taken inside of it
  std::vector<Peer> peers;
  bool connected = false;
  bool closing = false;
  std::optional<Error> why_closing;  // unless a rank closes it on purpose
  std::function<void()> on_closing;

  const std::shared_ptr<FrameBuffers> buffers = std::make_shared<FrameBuffers>();
  std::unique_ptr<LinkLoop> loop;
};

template <class Ready>
Result<void> NetworkMesh::State::wait(std::unique_lock<std::mutex>& lock, LinkTurn& turn, int peer,
                                      const Ready& ready) {
  using Clock = Deadline::Clock;
  if (ready()) return {};
  const BlockingScope waits;
  std::optional<Clock::time_point> end;
  while (!ready()) {
    if (!closing && !at(peer).gone && deadline.is_over()) {
      close(fail(ErrorCode::timed_out,
                 "collectives: rank {} of {}: rank {} did not come within {} ms", rank, size, peer,
                 timeout.count()));
    }
    if (closing || at(peer).gone) {
      if (!end) end = Clock::now() + last_word_grace;
      if (Clock::now() >= *end) break;
    }
    await_news(lock, turn, end ? *end : deadline.next_look());
  }
  if (ready()) return {};
  if (closing) return cause();
  return fail(ErrorCode::peer_died, "collectives: rank {} of {}: rank {} has left the group", rank,
              size, peer);
}

}  // namespace troupe
