#include "runtime/control/caf_supervisor.hpp"

#include <algorithm>

#include "runtime/control/control_plane.hpp"

namespace troupe {
namespace {

constexpr std::size_t max_backlog_bytes = std::size_t{512} << 20;

// A message to the actor.
struct FrameCame {
  std::shared_ptr<const std::vector<std::byte>> frame;
};
struct LinkClosed {
  std::shared_ptr<const Error> why;
};
struct PeerIsSilent {};
struct Beat {};

}  // namespace
}  // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::FrameCame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::LinkClosed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::PeerIsSilent)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Beat)

namespace troupe {
namespace {

struct State {
  std::shared_ptr<TlsLink> link;
  ControlSession session;
  SupervisorEvents events;
  std::shared_ptr<std::atomic<std::size_t>> backlog;
  std::shared_ptr<PeerLease> lease;
  bool is_over = false;

  void give_up(const Error& why) {
    if (std::exchange(is_over, true)) return;
    // Goes out before the link closes, as far as the socket takes it.
    if (!session.is_greeted())
      (void)link->send(LinkFrame(encode_message(AgentRefused{why.message})));
    link->close();
    events.on_over(session.is_greeted(), why);
  }
  void on_frame(std::span<const std::byte> frame) {
    if (is_over) return;
    auto message = session.on_frame(frame);
    if (!message.ok()) return give_up(message.error());
    if (std::holds_alternative<Suspend>(*message)) lease->suspend();
    if (std::holds_alternative<Resume>(*message)) lease->resume();
    events.on_message(*std::move(message));
  }
};

const Bytes& heartbeat() {
  static const Bytes bytes = encode_message(Heartbeat{});
  return bytes;
}

bool is_heartbeat(std::span<const std::byte> frame) {
  return std::ranges::equal(frame, heartbeat());
}

caf::behavior supervise(caf::event_based_actor* self, const std::shared_ptr<State>& state) {
  self->set_exit_handler([self](const caf::exit_msg& exit) { self->quit(exit.reason); });
  return {
      [state](const FrameCame& came) {
        *state->backlog -= came.frame->size();
        state->on_frame(*came.frame);
      },
      [self, state](const LinkClosed& closed) {
        state->give_up(*closed.why);
        self->quit();
      },
      [state](PeerIsSilent) {
        state->give_up(fail(ErrorCode::timed_out, "{} was silent for {} ms",
                            state->link->peer().text(), silence_limit.count()));
      },
  };
}

}  // namespace

CafSystem::CafSystem() {
  config_.set("scheduler.policy", caf::atom("sharing"));
  config_.set("scheduler.max-threads", std::size_t{1});
  config_.set("logger.verbosity", caf::atom("quiet"));
  system_ = std::make_unique<caf::actor_system>(config_);
}

CafSystem::~CafSystem() = default;

Supervisor::Supervisor(CafSystem& system, std::shared_ptr<TlsLink> link, ControlSession session,
                       Heartbeats heartbeats, SupervisorEvents events)
    : link_(link),
      backlog_(std::make_shared<std::atomic<std::size_t>>(0)),
      lease_(std::make_shared<PeerLease>(silence_limit)),
      answers_(heartbeats == Heartbeats::answered),
      was_heard_(session.is_greeted()) {
  auto state = std::make_shared<State>(
      State{std::move(link), std::move(session), std::move(events), backlog_, lease_});
  actor_ = system.get().spawn(supervise, state);
}

void Supervisor::on_frame(std::vector<std::byte> frame) {
  lease_->hear();
  // What comes first introduces the peer: the session refuses anything else.
  if (std::exchange(was_heard_, true) && is_heartbeat(frame)) {
    if (answers_) send_heartbeat();
    return;
  }
  const std::size_t bytes = frame.size();
  const std::size_t backlog = *backlog_ += bytes;
  if (backlog > max_backlog_bytes) return link_->close();
  caf::anon_send(actor_,
                 FrameCame{std::make_shared<const std::vector<std::byte>>(std::move(frame))});
}

void Supervisor::on_closed(const Error& why) {
  caf::anon_send(actor_, LinkClosed{std::make_shared<const Error>(why)});
}

Lease::Clock::duration Supervisor::check_lease() {
  const auto left = lease_->left();
  if (is_given_up_ || left > Lease::Clock::duration::zero()) return left;
  is_given_up_ = true;
  caf::anon_send(actor_, PeerIsSilent{});
  return left;
}

// on_closed reports a closed link.
void Supervisor::send_heartbeat() { (void)link_->send(LinkFrame(heartbeat())); }

void Supervisor::stop() { caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown); }

// On a thread of its own: a supervisor may take seconds over a message, as over the end of a
// process with 100,000 actors.
Pulse::Pulse(CafSystem& system) : actor_(system.get().spawn<caf::detached>(beat, peers_)) {}

Pulse::~Pulse() { caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown); }

void Pulse::add(std::shared_ptr<Supervisor> peer) {
  const std::lock_guard lock(peers_->mutex);
  peers_->all.push_back(std::move(peer));
}

void Pulse::remove(const std::shared_ptr<Supervisor>& peer) {
  const std::lock_guard lock(peers_->mutex);
  std::erase(peers_->all, peer);
}

caf::behavior Pulse::beat(caf::event_based_actor* self, const std::shared_ptr<Peers>& peers) {
  self->set_exit_handler([self](const caf::exit_msg& exit) { self->quit(exit.reason); });
  self->send(self, Beat{});
  return {[self, peers](Beat) {
    std::vector<std::shared_ptr<Supervisor>> all;
    {
      const std::lock_guard lock(peers->mutex);
      all = peers->all;
    }
    Lease::Clock::duration wait = heartbeat_interval;
    for (const auto& peer : all) {
      const auto left = peer->check_lease();
      if (left == Lease::Clock::duration::zero()) continue;
      peer->send_heartbeat();
      wait = std::min(wait, left);  // a lease is looked at when it ends
    }
    self->delayed_send(self, std::chrono::ceil<std::chrono::milliseconds>(wait), Beat{});
  }};
}

}  // namespace troupe
