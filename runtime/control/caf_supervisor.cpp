#include "runtime/control/caf_supervisor.hpp"

#include "runtime/base/log.hpp"
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
struct Tick {
  bool is_heartbeat = true;  ///< else the peer's lease is checked alone
};

}  // namespace
}  // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::FrameCame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::LinkClosed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Tick)

namespace troupe {
namespace {

struct State {
  std::shared_ptr<TlsLink> link;
  ControlSession session;
  SupervisorEvents events;
  std::shared_ptr<std::atomic<std::size_t>> backlog;
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
    if (*message) events.on_message(**std::move(message));
  }
  /// Gives a peer up that was silent for too long.
  void check_lease() {
    if (!session.has_expired()) return;
    give_up(fail(ErrorCode::timed_out, "{} was silent for {} ms", link->peer().text(),
                 silence_limit.count()));
  }
};

caf::behavior supervise(caf::event_based_actor* self, const std::shared_ptr<State>& state) {
  self->set_exit_handler([self](const caf::exit_msg& exit) { self->quit(exit.reason); });
  self->send(self, Tick{});
  return {
      [state](const FrameCame& came) {
        *state->backlog -= came.frame->size();
        state->on_frame(*came.frame);
      },
      [self, state](const LinkClosed& closed) {
        state->give_up(*closed.why);
        self->quit();
      },
      [self, state](Tick tick) {
        if (state->is_over) return;
        state->check_lease();
        if (state->is_over || !tick.is_heartbeat) return;
        // on_closed reports a closed link
        (void)state->link->send(LinkFrame(encode_message(Heartbeat{})));
        self->delayed_send(self, heartbeat_interval, Tick{});
        // A lease that ends before the next heartbeat is checked when it does.
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(state->session.silence_left());
        if (left < heartbeat_interval) self->delayed_send(self, left, Tick{.is_heartbeat = false});
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
                       SupervisorEvents events)
    : link_(link), backlog_(std::make_shared<std::atomic<std::size_t>>(0)) {
  auto state = std::make_shared<State>(
      State{std::move(link), std::move(session), std::move(events), backlog_});
  actor_ = system.get().spawn(supervise, state);
}

void Supervisor::on_frame(std::vector<std::byte> frame) {
  const std::size_t bytes = frame.size();
  const std::size_t backlog = *backlog_ += bytes;
  if (backlog > max_backlog_bytes) return link_->close();
  caf::anon_send(actor_,
                 FrameCame{std::make_shared<const std::vector<std::byte>>(std::move(frame))});
}

void Supervisor::on_closed(const Error& why) {
  caf::anon_send(actor_, LinkClosed{std::make_shared<const Error>(why)});
}

void Supervisor::stop() { caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown); }

}  // namespace troupe
