#include "parallel/collectives/gloo/gloo_mesh.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include <gloo/transport/buffer.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "parallel/collectives/gloo/gloo_addresses.hpp"
#include "parallel/collectives/sigpipe_blocked.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/link/local_address.hpp"

namespace troupe {

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr int max_ranks = 64;
constexpr int lane_count = 2;
constexpr std::chrono::milliseconds goodbye_limit{200};
// From the shutdown notice to closing the connections: what is under way gets through.
constexpr std::chrono::milliseconds last_word_grace{10};

// The notice that a rank sends before it closes its connections; 0 until then.
enum class ShutdownNotice : std::uint32_t { none, aborted, left };

using GlooBuffer = std::unique_ptr<gloo::transport::Buffer>;

// Slots that the two ends of a pair use for what `from` sends to `to`; all slots of a pair differ,
// as Gloo forgets the receiver of a slot with the sender of the same number.
struct Slots {
  Slots(int from, int to) : direction(from < to ? 0 : 1) {}
  int puts(int lane) const { return lane * 4 + direction; }
  int credits(int lane) const { return lane * 4 + 2 + direction; }
  int shutdown_notice() const { return lane_count * 4 + direction; }
  int direction;
};

struct LaneEnds {
  std::unique_ptr<std::byte[]> outbox;
  std::unique_ptr<std::byte[]> inbox;
  GlooBuffer puts_out, puts_in;
  GlooBuffer credits_out, credits_in;  // of 0 bytes
};

struct Peer {
  std::array<LaneEnds, lane_count> lanes;
  ShutdownNotice said = ShutdownNotice::none;
  ShutdownNotice heard = ShutdownNotice::none;  // written by Gloo
  GlooBuffer notice_out, notice_in;
  std::uint64_t nonce = 0;
  bool gone = false;  // sent a shutdown_notice, or was lost
  std::thread watcher;
};

}  // namespace

struct GlooMesh::State {
  ~State();
  void open_lanes(int to);
  LaneEnds& ends(int peer, Lane lane) {
    return peers[static_cast<std::size_t>(peer)].lanes[static_cast<std::size_t>(lane)];
  }

  // The watchdog thread: ends the waits of a call whose time is over; Gloo's own have no timeout.
  void keep_time();
  void arm(std::chrono::milliseconds time);
  void disarm();

  // The thread that learns how a peer ends, whatever this rank waits for meanwhile.
  void watch(int peer);

  void end();
  void finish(ShutdownNotice word);
  void say(ShutdownNotice word);
  void sever(std::chrono::milliseconds grace);
  void say_goodbye();
  Error cause();
  Error explain(int peer, std::string_view what);

  template <class Call>
  Result<void> attempt(int peer, const Call& call) {
    try {
      waits_for.store(peer, std::memory_order_relaxed);
      call();
      return {};
    } catch (const std::exception& error) {
      return explain(peer, error.what());
    }
  }

  int rank = 0;
  int size = 0;
  std::size_t room = 0;
  std::uint64_t nonce = 0;
  bool connected = false;
  std::shared_ptr<gloo::transport::Device> device;
  std::shared_ptr<gloo::transport::Context> context;
  std::vector<Peer> peers;  // after the members that their buffers refer to

  std::mutex mutex;                 // guards the members below and Peer::gone
  std::condition_variable changed;  // for the watchdog
  std::condition_variable gone;     // a peer is gone, or the group is closing
  std::chrono::milliseconds timeout = std::chrono::seconds(1);
  std::optional<Deadline> deadline;
  bool stopping = false;
  bool closing = false;
  std::optional<Error> why_closing;  // unless a rank closes it on purpose
  std::atomic<int> waits_for = -1;
  std::thread watchdog;
};

GlooMesh::State::~State() {
  if (context) say_goodbye();
  if (watchdog.joinable()) {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_one();
    watchdog.join();
  }
  // Buffers must outlive the connections that Gloo's thread uses.
  if (context) sever(std::chrono::milliseconds(0));
  for (Peer& peer : peers) {
    if (peer.watcher.joinable()) peer.watcher.join();
  }
}

void GlooMesh::State::open_lanes(int to) {
  Peer& peer = peers[static_cast<std::size_t>(to)];
  auto& pair = *context->createPair(to);
  const Slots out(rank, to);
  const Slots in(to, rank);
  for (int lane = 0; lane < lane_count; ++lane) {
    LaneEnds& ends = peer.lanes[static_cast<std::size_t>(lane)];
    ends.outbox = std::make_unique_for_overwrite<std::byte[]>(room);
    ends.inbox = std::make_unique_for_overwrite<std::byte[]>(room);
    ends.puts_out = pair.createSendBuffer(out.puts(lane), ends.outbox.get(), room);
    ends.puts_in = pair.createRecvBuffer(in.puts(lane), ends.inbox.get(), room);
    ends.credits_out = pair.createSendBuffer(out.credits(lane), nullptr, 0);
    ends.credits_in = pair.createRecvBuffer(in.credits(lane), nullptr, 0);
  }
  peer.notice_out = pair.createSendBuffer(out.shutdown_notice(), &peer.said, sizeof(peer.said));
  peer.notice_in = pair.createRecvBuffer(in.shutdown_notice(), &peer.heard, sizeof(peer.heard));
}

void GlooMesh::State::arm(std::chrono::milliseconds time) {
  const std::lock_guard lock(mutex);
  timeout = time;
  deadline = deadline_in(time);
  // The watchdog looks every slice, so it rarely needs a wake-up.
  if (time < Deadline::slice) changed.notify_one();
}

void GlooMesh::State::disarm() {
  const std::lock_guard lock(mutex);
  deadline.reset();
}

void GlooMesh::State::keep_time() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    if (deadline) {
      changed.wait_until(lock, deadline->next_look());
    } else {
      changed.wait_for(lock, Deadline::slice);
    }
    if (stopping || !deadline || !deadline->is_over()) continue;
    deadline.reset();
    if (closing) continue;
    closing = true;
    why_closing =
        fail(ErrorCode::timeout, "collectives: rank {} of {}: rank {} did not come within {} ms",
             rank, size, waits_for.load(), timeout.count());
    lock.unlock();
    finish(ShutdownNotice::aborted);
    lock.lock();
  }
}

void GlooMesh::State::watch(int peer) {
  Peer& other = peers[static_cast<std::size_t>(peer)];
  std::string lost;
  try {
    other.notice_in->waitRecv();
  } catch (const std::exception& error) {
    // Gloo reports the end of a connection before the bytes that came ahead of it.
    if (other.heard == ShutdownNotice::none) lost = error.what();
  }
  bool first = false;
  {
    const std::lock_guard lock(mutex);
    other.gone = true;
    first = !closing && (!lost.empty() || other.heard == ShutdownNotice::aborted);
    closing |= first;
    if (first && !lost.empty()) {
      why_closing = fail(ErrorCode::peer_died,
                         "collectives: rank {} of {} lost the connection to rank {}: {}", rank,
                         size, peer, lost);
    }
  }
  gone.notify_all();
  if (first) finish(ShutdownNotice::aborted);
}

void GlooMesh::State::end() {
  {
    const std::lock_guard lock(mutex);
    if (closing) return;
    closing = true;
  }
  finish(ShutdownNotice::aborted);
}

// Called by the thread that has set `closing`.
void GlooMesh::State::finish(ShutdownNotice word) {
  gone.notify_all();
  say(word);
  sever(last_word_grace);
}

void GlooMesh::State::say(ShutdownNotice word) {
  const SigpipeBlocked no_signal;
  for (Peer& peer : peers) {
    if (!peer.notice_out) continue;
    try {
      peer.said = word;
      peer.notice_out->send(0, sizeof(word));
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
      // The peer is gone and needs no shutdown_notice.
    }
  }
}

void GlooMesh::State::sever(std::chrono::milliseconds grace) {
  // A wait of Gloo's that times out ends all connections of its context, and all waits on them,
  // which no other public call does. No rank ever sends to this buffer.
  std::byte nothing{};
  try {
    context->createUnboundBuffer(&nothing, 1)->waitRecv(nullptr, grace);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
    // The timeout, as intended.
  }
}

void GlooMesh::State::say_goodbye() {
  {
    const std::lock_guard lock(mutex);
    if (closing || !connected) return;
    closing = true;
  }
  say(ShutdownNotice::left);
  std::unique_lock lock(mutex);
  gone.wait_for(lock, goodbye_limit, [&] {
    return std::ranges::all_of(
        peers, [](const Peer& peer) { return peer.gone || !peer.watcher.joinable(); });
  });
}

// Requires the mutex, when the group is closing.
Error GlooMesh::State::cause() {
  if (why_closing) return *why_closing;
  return fail(ErrorCode::cancelled, "collectives: rank {} of {}: the group was aborted", rank,
              size);
}

Error GlooMesh::State::explain(int peer, std::string_view what) {
  // The thread waiting for a peer and the thread watching it learn of its end in any order.
  std::unique_lock lock(mutex);
  const bool left = gone.wait_for(lock, std::chrono::seconds(1), [&] {
    return closing || peers[static_cast<std::size_t>(peer)].gone;
  });
  if (closing) return cause();
  return fail(ErrorCode::peer_died, "collectives: rank {} of {}: rank {} {}: {}", rank, size, peer,
              left ? "has left the group" : "cannot be reached", what);
}

GlooMesh::GlooMesh(std::unique_ptr<State> state) : state_(std::move(state)) {}
GlooMesh::~GlooMesh() = default;

Result<std::unique_ptr<GlooMesh>> GlooMesh::listen(const std::string& interface, int rank, int size,
                                                   std::size_t room) {
  if (size < 1 || size > max_ranks || rank < 0 || rank >= size || room == 0) {
    return fail(ErrorCode::invalid_argument,
                "collectives: rank {} of {} ranks (1 to {} form a group) with {} bytes for each "
                "other",
                rank, size, max_ranks, room);
  }
  const SigpipeBlocked no_signal;
  auto state = std::make_unique<State>();
  state->rank = rank;
  state->size = size;
  state->room = (room + page_bytes - 1) / page_bytes * page_bytes;
  // Gloo's own search for an interface's address leaks memory where there is none.
  TROUPE_TRY(const std::string address, interface_address(interface));
  gloo::transport::tcp::attr attributes;
  attributes.hostname = address;
  try {
    std::random_device random;
    state->nonce = (std::uint64_t{random()} << 32) | random();
    state->device = gloo::transport::tcp::CreateDevice(attributes);
    state->context = state->device->createContext(rank, size);
    state->context->setTimeout(std::chrono::milliseconds(0));  // none: see keep_time()
    state->peers.resize(static_cast<std::size_t>(size));
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank) state->open_lanes(peer);
    }
    state->watchdog = std::thread(&State::keep_time, state.get());
  } catch (const std::exception& error) {
    return fail(ErrorCode::io, "collectives: rank {} cannot listen on {} ({}): {}", rank, interface,
                address, error.what());
  }
  return std::unique_ptr<GlooMesh>(new GlooMesh(std::move(state)));
}

std::string GlooMesh::addresses() const {
  GlooAddresses own{state_->rank, state_->room, state_->nonce, {}};
  for (int peer = 0; peer < size(); ++peer) {
    std::string text;
    if (peer != rank()) {
      const std::vector<char> bytes = state_->context->getPair(peer)->address().bytes();
      text.assign(bytes.begin(), bytes.end());
    }
    own.for_rank.push_back(std::move(text));
  }
  return encode(own);
}

Result<void> GlooMesh::connect(std::span<const std::string> addresses,
                               std::chrono::milliseconds timeout) {
  TROUPE_TRY(const auto all, decode_group(addresses, state_->room));
  if (static_cast<int>(all.size()) != size()) {
    return fail(ErrorCode::invalid_argument,
                "collectives: addresses of {} ranks given, expected {}", all.size(), size());
  }
  arm(timeout);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const auto& theirs = all[static_cast<std::size_t>(peer)];
    const std::string& text = theirs.for_rank[static_cast<std::size_t>(rank())];
    Peer& other = state_->peers[static_cast<std::size_t>(peer)];
    other.nonce = theirs.nonce;
    auto done = state_->attempt(peer, [&] {
      state_->context->getPair(peer)->connect(std::vector<char>(text.begin(), text.end()));
    });
    if (done) {
      try {
        other.watcher = std::thread(&State::watch, state_.get(), peer);
      } catch (const std::exception& error) {
        done = fail(ErrorCode::io, "collectives: rank {} of {} cannot start a thread: {}", rank(),
                    size(), error.what());
      }
    }
    if (!done) close();
    TROUPE_CHECK(done);
  }
  TROUPE_CHECK(check());
  state_->connected = true;
  return {};
}

int GlooMesh::rank() const { return state_->rank; }
int GlooMesh::size() const { return state_->size; }
std::size_t GlooMesh::room() const { return state_->room; }
void GlooMesh::arm(std::chrono::milliseconds timeout) { state_->arm(timeout); }
void GlooMesh::disarm() { state_->disarm(); }
void GlooMesh::close() { state_->end(); }
std::uint64_t GlooMesh::own_nonce() const { return state_->nonce; }
std::uint64_t GlooMesh::nonce(int peer) const {
  return state_->peers[static_cast<std::size_t>(peer)].nonce;
}

Result<void> GlooMesh::check() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->closing) return {};
  return state_->cause();
}

Result<void> GlooMesh::wait_closed() const {
  std::unique_lock lock(state_->mutex);
  if (!state_->gone.wait_for(lock, goodbye_limit, [&] { return state_->closing; })) return {};
  return state_->cause();
}

std::span<std::byte> GlooMesh::outbox(int peer, Lane lane) {
  return {state_->ends(peer, lane).outbox.get(), state_->room};
}

std::span<const std::byte> GlooMesh::inbox(int peer, Lane lane) const {
  return {state_->ends(peer, lane).inbox.get(), state_->room};
}

Result<void> GlooMesh::put(int peer, Lane lane, std::size_t begin, std::size_t bytes) {
  const SigpipeBlocked no_signal;
  return state_->attempt(peer,
                         [&] { state_->ends(peer, lane).puts_out->send(begin, bytes, begin); });
}

Result<void> GlooMesh::wait_put(int peer, Lane lane) {
  return state_->attempt(peer, [&] { state_->ends(peer, lane).puts_in->waitRecv(); });
}

Result<void> GlooMesh::give_credit(int peer, Lane lane) {
  const SigpipeBlocked no_signal;
  return state_->attempt(peer, [&] {
    auto& credits = *state_->ends(peer, lane).credits_out;
    credits.send(0, 0);
    credits.waitSend();
  });
}

Result<void> GlooMesh::wait_credit(int peer, Lane lane) {
  return state_->attempt(peer, [&] { state_->ends(peer, lane).credits_in->waitRecv(); });
}

Result<void> GlooMesh::reap(int peer, Lane lane, int puts) {
  return state_->attempt(peer, [&] {
    for (; puts > 0; --puts) state_->ends(peer, lane).puts_out->waitSend();
  });
}

}  // namespace troupe
