#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include <caf/all.hpp>

#include "runtime/control/control_session.hpp"
#include "runtime/link/link.hpp"

namespace troupe {

/// CAF within this process: one thread that sleeps when there is nothing to do (policy "sharing";
/// the default one polls).
class CafSystem {
 public:
  CafSystem();
  ~CafSystem();  ///< waits until all actors have ended
  caf::actor_system& get() { return *system_; }

 private:
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
};

/// A supervisor's callbacks, on CAF's thread.
struct SupervisorEvents {
  std::function<void(ControlMessage message)> on_message;
  /// The peer is gone, silent or the wrong one. Called once.
  std::function<void(bool was_greeted, const Error& why)> on_over;
};

/// The actor that supervises one peer: `session` checks what comes over the link; it sends
/// heartbeats and gives the peer up when its lease has expired. It ends when the link ends.
class Supervisor {
 public:
  Supervisor(CafSystem& system, std::shared_ptr<TlsLink> link, ControlSession session,
             SupervisorEvents events);

  /// Called on the link's thread. A peer that sends faster than the actor works is disconnected.
  void on_frame(std::vector<std::byte> frame);
  void on_closed(const Error& why);
  /// Ends the actor without an event.
  void stop();

 private:
  std::shared_ptr<TlsLink> link_;
  std::shared_ptr<std::atomic<std::size_t>> backlog_;  ///< bytes of frames in the mailbox
  caf::actor actor_;
};

}  // namespace troupe
