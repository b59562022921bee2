#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/call/actor_address.hpp"
#include "runtime/call/callback_thread.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/call/transport.hpp"

namespace troupe {

/// Receives the answer of a call: the encoded return value, or the error. Called exactly once, on
/// any thread; must not block.
using CallCompletion = std::function<void(Result<Bytes>)>;

/// Method numbers from here on are the runtime's own: such calls belong to others that have taken
/// credit, so they wait for none. (What they carry is small, and they are answered.)
inline constexpr std::uint16_t first_reserved_method = 0xfff0;

/// A call on its way to a local actor. `arguments` are the encoded arguments.
struct IncomingCall {
  std::uint16_t method = 0;
  Bytes arguments;
  CallCompletion answer;
  /// Expires with the link that it came over; never held anything for a caller in this process.
  std::weak_ptr<const void> caller{};
};

/// A local actor as the call plane sees it.
class CallTarget {
 public:
  virtual ~CallTarget() = default;
  /// Queues the call. Must not block; a target that drops the call must answer it.
  virtual void deliver(IncomingCall call) = 0;
};

/// The call plane of one process: routes calls to local targets or over connections opened on first
/// use, and sends answers back. All functions are callable from any thread.
///
/// Order: calls that one thread makes to one actor arrive in that order.
/// Bounds (credits): from this process to one actor at most `credits` calls may be unanswered, with
/// `credit_bytes` of arguments, or one call of any size; an actor's mailbox therefore holds at most
/// so many for each calling process. Answers whose callbacks are due (see callbacks()) count like
/// unanswered calls, with the bytes of the answers; one more may slip in for each thread that
/// brings answers. A call beyond that waits until an answer comes in or a callback begins. So does
/// one while its link has more queued than the transport allows (Link::send), which all actors of
/// the process share. It waits at most `credit_timeout` in all, then fails with resource_exhausted;
/// on a thread that runs a callback (see runs_callback) it fails at once.
/// Size: a call or an answer above the transport's limit of a frame fails by itself with
/// invalid_argument; others on the same connection go on.
/// Death: a process answers each call that reaches it, or else its connection ends after its last
/// answer. So a call is known to be unanswered only once its connection has ended: then it fails
/// with peer_died, with the cause if supervision reports it within `cause_grace`. So does one to an
/// actor that has left a process which goes on. Later calls fail at once.
/// Restarts: calls to an actor that may be started again go to its latest incarnation. While there
/// is none they are kept, in order and within the credits. No call is sent twice.
class CallHub : public std::enable_shared_from_this<CallHub> {
 public:
  struct Options {
    std::size_t credits = 1024;
    std::size_t credit_bytes = std::size_t{256} << 20;
    std::chrono::milliseconds credit_timeout{10000};
    std::chrono::milliseconds cause_grace{100};
    /// Bounds the wait for a connection that, after its actor was marked down, neither brings
    /// answers nor ends.
    std::chrono::milliseconds last_answer_timeout{10000};
    /// So many ended actors are known by their cause; older ones are taken for actors that were
    /// never called.
    std::size_t remembered_ends = 4096;
    /// Called before the first call to an actor of another process, so that its end be reported to
    /// mark_down, and where it is to mark_moved if it is restartable; may be null.
    std::function<void(const ActorAddress& actor)> on_first_call{};
  };

  /// The hub listens on the transport's endpoint from the start.
  static Result<std::shared_ptr<CallHub>> create(std::unique_ptr<Transport> transport,
                                                 Options options);
  virtual ~CallHub() = default;

  /// Where other processes of the job connect to this hub.
  virtual const std::string& endpoint() const = 0;

  /// Makes `target` callable under `id` until it is removed. Calls to unknown ids are answered with
  /// peer_died.
  virtual void add_target(ActorId id, std::shared_ptr<CallTarget> target) = 0;
  virtual void remove_target(ActorId id) = 0;

  /// Calls method number `method` of the actor at `address`.
  virtual void call(const ActorAddress& address, std::uint16_t method, Bytes arguments,
                    CallCompletion completion) = 0;

  /// The thread on which the callbacks of futures run.
  virtual const std::shared_ptr<CallbackThread>& callbacks() const = 0;

  /// Runs `task` after `delay` on a thread of the runtime, as a callback (runs_callback); never
  /// after stop(). It must not block.
  virtual void run_after(std::chrono::milliseconds delay, std::function<void()> task) = 0;

  /// Marks an actor as gone, with a text for a person: later calls fail with peer_died, and calls
  /// under way as described above. The first text counts.
  virtual void mark_down(ActorId id, std::string why) = 0;

  /// The same for one incarnation of an actor that is started again: calls under way to it fail,
  /// later ones wait for the next incarnation.
  virtual void mark_restarting(ActorId id, std::uint32_t incarnation, std::string why) = 0;
  /// Marks where an incarnation of a restartable actor is; the latest counts. Calls that have
  /// waited for it are sent.
  virtual void mark_moved(const ActorAddress& address) = 0;

  /// Waits until all answers and calls sent so far are with the kernel, which delivers them even if
  /// this process ends. Errors: timed_out. Not in a callback.
  virtual Result<void> flush(std::chrono::milliseconds timeout) = 0;

  /// Closes everything, fails all unanswered calls with `cancelled`, and waits for the callbacks
  /// that are due. No callback runs afterwards. Called by the owner before it drops the last
  /// reference; idempotent.
  virtual void stop() = 0;
};

}  // namespace troupe
