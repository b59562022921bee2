#include "parallel/collectives/network/network_mesh.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>

#include "parallel/collectives/network/network_addresses.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/link/link.hpp"
#include "runtime/link/local_address.hpp"

namespace troupe {

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t max_piece_bytes = std::size_t{256} << 10;
constexpr int lane_count = 2;
// How long a call waits at its end for its last bytes to leave.
constexpr std::chrono::milliseconds drain_limit{2};
constexpr std::chrono::milliseconds goodbye_limit{200};
// How long a wait goes on when the group is closing or a peer is gone: what is under way from
// others still gets through.
constexpr std::chrono::milliseconds last_word_grace{10};
// A peer may be stopped, or short of a core, in the middle of a handshake.
constexpr std::chrono::milliseconds handshake_timeout{30'000};

enum class FrameKind : std::uint32_t { piece = 1, credit, notice };

// The notice that a rank sends before it closes its links.
enum class ShutdownNotice : std::uint32_t { aborted = 1, left };

// The beginning of every frame.
struct FrameHead {
  FrameKind kind;
  std::uint32_t what;   // the lane, or the ShutdownNotice
  std::uint64_t bytes;  // of the piece's frame, or of the credit
};

LinkFrame small_frame(FrameKind kind, std::uint32_t what, std::uint64_t bytes = 0) {
  const FrameHead head{kind, what, bytes};
  const auto frame = std::as_bytes(std::span(&head, 1));
  return LinkFrame(std::vector<std::byte>(frame.begin(), frame.end()));
}
LinkFrame notice_frame(ShutdownNotice notice) {
  return small_frame(FrameKind::notice, static_cast<std::uint32_t>(notice));
}

LinkPeer link_peer(int rank) { return {"rank", std::to_string(rank)}; }

// The rank of a link_peer() above `rank`, which connects to it; -1 for anybody else.
int connecting_rank(const LinkPeer& peer, int rank, int size) {
  int found = -1;
  std::from_chars(peer.name.data(), peer.name.data() + peer.name.size(), found);
  return found > rank && found < size && peer == link_peer(found) ? found : -1;
}

// Buffers of frames, used again: fresh memory costs more than what is copied into it.
class Buffers : public std::enable_shared_from_this<Buffers> {
 public:
  using Buffer = std::vector<std::byte>;

  // One that was given back, of any size, or an empty one.
  Buffer take() {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) return {};
    Buffer buffer = std::move(spare_.back());
    spare_.pop_back();
    return buffer;
  }
  // Owns `buffer` until it is given back.
  std::shared_ptr<const Buffer> own(Buffer buffer) {
    return {new Buffer(std::move(buffer)), [self = shared_from_this()](const Buffer* done) {
              std::unique_ptr<Buffer> buffer(const_cast<Buffer*>(done));
              self->give(std::move(*buffer));
            }};
  }

 private:
  static constexpr std::size_t max_spare = 16;

  void give(Buffer buffer) {
    const std::lock_guard lock(mutex_);
    if (spare_.size() < max_spare) spare_.push_back(std::move(buffer));
  }

  std::mutex mutex_;
  std::vector<Buffer> spare_;
};

// Both directions of a lane between two ranks, as this one sees it. Bytes are of whole frames.
struct LaneEnds {
  std::uint64_t uncredited = 0;                                // put, and not known to be taken
  std::deque<std::shared_ptr<const Buffers::Buffer>> arrived;  // not taken
  std::uint64_t held = 0;   // arrived, and not credited to the peer
  std::uint64_t taken = 0;  // of those, taken
};

struct Peer {
  std::array<LaneEnds, lane_count> lanes;
  std::shared_ptr<TlsLink> link;  // once open
  bool gone = false;              // sent a notice, or was lost
};

}  // namespace

struct NetworkMesh::State {
  ~State();
  LinkEvents events_of(int connected_to);
  void on_open(const std::shared_ptr<TlsLink>& link, int peer);
  void on_frame(const std::shared_ptr<TlsLink>& link, std::vector<std::byte>& frame);
  void on_closed(const std::shared_ptr<TlsLink>& link, int connected_to, const Error& why);
  int rank_of(const TlsLink* link) const;
  bool accept(int from, const FrameHead& head, std::vector<std::byte>& frame);

  void close(std::optional<Error> why, ShutdownNotice notice = ShutdownNotice::aborted);
  Error cause() const;
  // Runs the loop, which wants the mutex, until something has happened or until `until`.
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

  const std::shared_ptr<Buffers> buffers = std::make_shared<Buffers>();
  std::unique_ptr<LinkLoop> loop;
};

NetworkMesh::State::~State() {
  if (!loop) return;
  take_leave();
  loop->stop();  // its events refer to this
}

// Notices go after all that was put, and a link closes without sending what is queued.
void NetworkMesh::State::take_leave() {
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
    if (head.what == static_cast<std::uint32_t>(ShutdownNotice::aborted)) close(std::nullopt);
    return true;
  }
  if (head.what >= lane_count) return false;
  LaneEnds& ends = peer.lanes[head.what];
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

template <class Ready>
Result<void> NetworkMesh::State::wait(std::unique_lock<std::mutex>& lock, LinkTurn& turn, int peer,
                                      const Ready& ready) {
  using Clock = Deadline::Clock;
  std::optional<Clock::time_point> end;
  while (!ready()) {
    if (!closing && !at(peer).gone && deadline.is_over()) {
      close(fail(ErrorCode::timeout,
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

std::span<const std::byte> NetworkMesh::Piece::bytes() const {
  return std::span(*frame_).subspan(sizeof(FrameHead));
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
    if (connecting_rank(peer, raw->rank, raw->size) < 0) return std::nullopt;
    return link_key(*raw->keys, link_peer(raw->rank), peer);
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
    TROUPE_CHECK(state_->loop->connect(theirs.host, theirs.port, link_peer(rank()), link_peer(peer),
                                       link_key(*state_->keys, link_peer(peer), link_peer(rank())),
                                       state_->events_of(peer)));
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
std::size_t NetworkMesh::piece_bytes() const { return state_->piece_bytes - sizeof(FrameHead); }

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
  LinkTurn turn(*state_->loop);
  std::unique_lock lock(state_->mutex);
  Deadline news = deadline_in(goodbye_limit);
  while (!state_->closing && !news.is_over()) state_->await_news(lock, turn, news.next_look());
  if (!state_->closing) return {};
  return state_->cause();
}

void NetworkMesh::drain() {
  const auto end = Deadline::Clock::now() + drain_limit;
  LinkTurn turn(*state_->loop);
  std::unique_lock lock(state_->mutex);
  const auto is_sent = [](const Peer& peer) {
    return !peer.link || peer.link->queued_bytes() == 0;
  };
  while (!state_->closing && !std::ranges::all_of(state_->peers, is_sent) &&
         Deadline::Clock::now() < end) {
    state_->await_news(lock, turn, end);
  }
  for (const Peer& peer : state_->peers) {
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
  const std::size_t total = sizeof(FrameHead) + head.size() + bytes.size();
  const FrameHead first{FrameKind::piece, static_cast<std::uint32_t>(lane), total};
  Buffers::Buffer frame = state_->buffers->take();
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
  const FrameHead first{FrameKind::piece, static_cast<std::uint32_t>(lane),
                        sizeof(FrameHead) + head.size() + bytes.size()};
  const auto begin = std::as_bytes(std::span(&first, 1));
  std::vector<std::byte> heads(begin.begin(), begin.end());
  heads.insert(heads.end(), head.begin(), head.end());
  return state_->post(peer, lane, LinkFrame(std::move(heads), bytes));
}

Result<NetworkMesh::Piece> NetworkMesh::take(int peer, Lane lane) {
  LinkTurn turn(*state_->loop);
  std::unique_lock lock(state_->mutex);
  LaneEnds& ends = state_->ends(peer, lane);
  TROUPE_CHECK(state_->wait(lock, turn, peer, [&] { return !ends.arrived.empty(); }));
  Piece piece(std::move(ends.arrived.front()));
  ends.arrived.pop_front();
  ends.taken += sizeof(FrameHead) + piece.bytes().size();
  if (ends.taken < state_->piece_bytes) return piece;
  const std::uint64_t credit = std::exchange(ends.taken, 0);
  ends.held -= credit;
  const auto link = state_->at(peer).link;
  lock.unlock();
  // Only a living sender needs the credit; if it is gone, the next wait reports that.
  (void)link->post(small_frame(FrameKind::credit, static_cast<std::uint32_t>(lane), credit));
  return piece;
}

}  // namespace troupe
