#include "parallel/collectives/network/network_mesh.hpp"

#include <algorithm>
#include <utility>

#include "parallel/collectives/network/network_addresses.hpp"
#include "parallel/collectives/network/network_mesh_state.hpp"
#include "runtime/link/local_address.hpp"

namespace troupe {

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t max_piece_bytes = std::size_t{256} << 10;
// How long a call waits at its end for its last bytes to leave.
constexpr std::chrono::milliseconds drain_limit{2};
// How long wait_closed() waits for news.
constexpr std::chrono::milliseconds news_limit{200};
// A peer may be stopped, or short of a core, in the middle of a handshake.
constexpr std::chrono::milliseconds handshake_timeout{30'000};

}  // namespace

std::span<const std::byte> NetworkMesh::Piece::bytes() const {
  return std::span(*frame_).subspan(sizeof(State::FrameHead));
}

LinkTurn NetworkMesh::begin_turn() { return LinkTurn(*state_->loop); }

NetworkMesh::NetworkMesh(std::unique_ptr<State> state) : state_(std::move(state)) {}
NetworkMesh::~NetworkMesh() = default;

Result<std::unique_ptr<NetworkMesh>> NetworkMesh::listen(const std::string& interface, int rank,
                                                         int size, std::size_t room, const Key& key,
                                                         PortRange ports) {
  if (size < 1 || size > max_ranks || rank < 0 || rank >= size || room == 0) {
    return fail(ErrorCode::invalid_argument,
                "collectives: rank {} of {} ranks (1 to {} form a group) with {} bytes for each "
                "other",
                rank, size, max_ranks, room);
  }
  auto state = std::make_unique<State>();
  state->rank = rank;
  state->size = size;
  state->room = (room + page_bytes - 1) / page_bytes * page_bytes;
  state->piece_bytes = std::min(state->room / 8, max_piece_bytes);
  state->peers.resize(static_cast<std::size_t>(size));
  TROUPE_TRY(state->keys, JobKeys::from_secret(key));
  TROUPE_TRY(state->address, interface_address(interface));
  TROUPE_TRY(state->loop, LinkLoop::start({.max_frame_bytes = state->piece_bytes,
                                           .handshake_timeout = handshake_timeout}));
  const auto key_of = [raw = state.get()](const LinkPeer& peer) -> std::optional<Key> {
    if (State::connecting_rank(peer, raw->rank, raw->size) < 0) return std::nullopt;
    return link_key(*raw->keys, State::link_peer(raw->rank), peer);
  };
  const std::string name = fmt::format("tensor plane, rank {} of {}", rank, size);
  TROUPE_TRY(state->port,
             state->loop->listen(name, state->address, key_of, state->events_of(-1), ports));
  return std::unique_ptr<NetworkMesh>(new NetworkMesh(std::move(state)));
}

std::string NetworkMesh::addresses() const {
  return encode({state_->rank, state_->size, state_->room, state_->address, state_->port});
}

Result<void> NetworkMesh::connect(std::span<const std::string> addresses,
                                  std::chrono::milliseconds timeout) {
  TROUPE_TRY(const auto all, decode_group(addresses, state_->room));
  if (static_cast<int>(all.size()) != size()) {
    return fail(ErrorCode::invalid_argument,
                "collectives: addresses of {} ranks given, expected {}", all.size(), size());
  }
  arm(timeout);
  for (int peer = 0; peer < rank(); ++peer) {
    const NetworkAddresses& theirs = all[static_cast<std::size_t>(peer)];
    const auto asked = state_->loop->connect(
        theirs.host, theirs.port, State::link_peer(rank()), State::link_peer(peer),
        link_key(*state_->keys, State::link_peer(peer), State::link_peer(rank())),
        state_->events_of(peer));
    if (!asked.ok()) return asked.error();
  }
  LinkTurn turn(*state_->loop);
  std::unique_lock lock(state_->mutex);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    TROUPE_CHECK(
        state_->wait(lock, turn, peer, [&] { return state_->at(peer).link && !state_->closing; }));
  }
  state_->connected = true;
  return {};
}

int NetworkMesh::rank() const { return state_->rank; }
int NetworkMesh::size() const { return state_->size; }
std::size_t NetworkMesh::piece_bytes() const {
  return state_->piece_bytes - sizeof(State::FrameHead);
}

void NetworkMesh::arm(std::chrono::milliseconds timeout) {
  state_->timeout = timeout;
  state_->deadline = deadline_in(timeout);
}

void NetworkMesh::close() {
  const std::lock_guard lock(state_->mutex);
  state_->close(std::nullopt);
}

void NetworkMesh::when_closed(std::function<void()> closed) {
  const std::lock_guard lock(state_->mutex);
  if (state_->closing) return closed();
  state_->on_closing = std::move(closed);
}

Result<void> NetworkMesh::check() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->closing) return {};
  return state_->cause();
}

Result<void> NetworkMesh::wait_closed() const {
  const BlockingScope waits;
  LinkTurn turn(*state_->loop);
  std::unique_lock lock(state_->mutex);
  Deadline news = deadline_in(news_limit);
  while (!state_->closing && !news.is_over()) state_->await_news(lock, turn, news.next_look());
  if (!state_->closing) return {};
  return state_->cause();
}

void NetworkMesh::drain() {
  const BlockingScope waits;
  const auto end = Deadline::Clock::now() + drain_limit;
  LinkTurn turn(*state_->loop);
  std::unique_lock lock(state_->mutex);
  const auto is_sent = [](const State::Peer& peer) {
    return !peer.link || peer.link->queued_bytes() == 0;
  };
  while (!state_->closing && !std::ranges::all_of(state_->peers, is_sent) &&
         Deadline::Clock::now() < end) {
    state_->await_news(lock, turn, end);
  }
  for (const State::Peer& peer : state_->peers) {
    if (peer.link) peer.link->copy_borrowed();
  }
}

bool NetworkMesh::has_room(int peer, Lane lane) const {
  const std::lock_guard lock(state_->mutex);
  return state_->has_room(peer, lane);
}

Result<bool> NetworkMesh::await(int peer, Lane lane, const Ranks& receivers) {
  LinkTurn turn(*state_->loop);
  std::unique_lock lock(state_->mutex);
  const auto& arrived = state_->ends(peer, lane).arrived;
  const auto ready = [&] {
    if (!arrived.empty()) return true;
    for (int r = 0; r < size(); ++r) {
      if (receivers[static_cast<std::size_t>(r)] && state_->has_room(r, lane)) return true;
    }
    return false;
  };
  TROUPE_CHECK(state_->wait(lock, turn, peer, ready));
  return !arrived.empty();
}

Result<void> NetworkMesh::put(int peer, Lane lane, std::span<const std::byte> head,
                              std::span<const std::byte> bytes) {
  const std::size_t total = sizeof(State::FrameHead) + head.size() + bytes.size();
  const State::FrameHead first{State::FrameKind::piece, static_cast<std::uint32_t>(lane), total};
  FrameBuffers::Buffer frame = state_->buffers->take();
  frame.resize(total);
  std::span<std::byte> left(frame);
  for (const auto part : {std::as_bytes(std::span(&first, 1)), head, bytes}) {
    std::ranges::copy(part, left.begin());
    left = left.subspan(part.size());
  }
  const auto owner = state_->buffers->own(std::move(frame));
  return state_->post(peer, lane, LinkFrame(*owner, owner));
}

Result<void> NetworkMesh::lend(int peer, Lane lane, std::span<const std::byte> head,
                               std::span<const std::byte> bytes) {
  const State::FrameHead first{State::FrameKind::piece, static_cast<std::uint32_t>(lane),
                               sizeof(State::FrameHead) + head.size() + bytes.size()};
  const auto begin = std::as_bytes(std::span(&first, 1));
  std::vector<std::byte> heads(begin.begin(), begin.end());
  heads.insert(heads.end(), head.begin(), head.end());
  return state_->post(peer, lane, LinkFrame(std::move(heads), bytes));
}

Result<NetworkMesh::Piece> NetworkMesh::take(int peer, Lane lane) {
  LinkTurn turn(*state_->loop);
  std::unique_lock lock(state_->mutex);
  State::LaneEnds& ends = state_->ends(peer, lane);
  TROUPE_CHECK(state_->wait(lock, turn, peer, [&] { return !ends.arrived.empty(); }));
  Piece piece(std::move(ends.arrived.front()));
  ends.arrived.pop_front();
  ends.taken += sizeof(State::FrameHead) + piece.bytes().size();
  if (ends.taken < state_->piece_bytes) return piece;
  const std::uint64_t credit = std::exchange(ends.taken, 0);
  ends.held -= credit;
  const auto link = state_->at(peer).link;
  lock.unlock();
  // Only a living sender needs the credit; if it is gone, the next wait reports that.
  (void)link->post(
      State::small_frame(State::FrameKind::credit, static_cast<std::uint32_t>(lane), credit));
  return piece;
}

}  // namespace troupe
