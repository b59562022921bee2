#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <caf/all.hpp>

#include "runtime/control/control_session.hpp"
#include "runtime/control/peer_lease.hpp"
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

/// The actor that supervises one peer: `session` checks what comes over the link. It ends when the
/// link ends. Heartbeats are no messages to it, so that they wake no thread but the link's.
class Supervisor {
 public:
  /// Who begins with heartbeats and who answers them.
  enum class Heartbeats : bool { sent, answered };

  Supervisor(CafSystem& system, std::shared_ptr<TlsLink> link, ControlSession session,
             Heartbeats heartbeats, SupervisorEvents events);

  /// Called on the link's thread. A peer that sends faster than the actor works is disconnected.
  void on_frame(std::vector<std::byte> frame);
  void on_closed(const Error& why);
  /// Gives the peer up if it was silent for too long. Returns how long it may still be silent. From
  /// one thread, every heartbeat_interval or more often.
  Lease::Clock::duration check_lease();
  void send_heartbeat();
  /// Ends the actor without an event.
  void stop();

 private:
  std::shared_ptr<TlsLink> link_;
  std::shared_ptr<std::atomic<std::size_t>> backlog_;  ///< bytes of frames in the mailbox
  std::shared_ptr<PeerLease> lease_;
  const bool answers_;
  bool was_heard_ = false;    ///< of the link's thread
  bool is_given_up_ = false;  ///< of the thread that checks the lease
  caf::actor actor_;
};

/// The actor that sends heartbeats to all peers of a process and checks their leases: one timer and
/// one thread for hundreds of links, whatever their supervisors do. It ends with this object.
class Pulse {
 public:
  explicit Pulse(CafSystem& system);
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  /// From any thread; a supervisor is removed when its link is over.
  void add(std::shared_ptr<Supervisor> peer);
  void remove(const std::shared_ptr<Supervisor>& peer);

 private:
  struct Peers {
    std::mutex mutex;
    std::vector<std::shared_ptr<Supervisor>> all;
  };
  static caf::behavior beat(caf::event_based_actor* self, const std::shared_ptr<Peers>& peers);

  std::shared_ptr<Peers> peers_ = std::make_shared<Peers>();
  caf::actor actor_;
};

}  // namespace troupe
