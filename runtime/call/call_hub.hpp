#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/call/actor_address.hpp"
#include "runtime/call/call_completion.hpp"
#include "runtime/call/call_observer.hpp"
#include "runtime/call/call_terms.hpp"
#include "runtime/call/callback_thread.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/call/incoming_call.hpp"
#include "runtime/call/transport.hpp"

namespace troupe {

class ObjectStore;

/// Method numbers from here on are the runtime's own: such calls belong to others that have taken
/// credit, or keep two processes informed, so they wait for none. What they carry is small.
inline constexpr std::uint16_t first_reserved_method = 0xfff0;

/// Which call it was, for whoever wants to cancel it.
struct CallTicket {
  ActorId actor = 0;
  std::uint64_t call = 0;  ///< to an actor of another process
  CancelToken local{};     ///< to one of this process
};

/// The call plane of one process: routes calls to local targets or over connections opened on first
/// use, and sends answers back. All functions are callable from any thread.
///
/// Order: calls that one thread makes to one actor come to each of its incarnations in that order,
/// over broken links, too, and whether they may be made again or not. So an actor that runs one
/// call at a time begins them in the order in which they were made. (A node that is cut off from
/// the driver may run an incarnation for some seconds beside the next one.)
///
/// Bounds (credits): from this process to one actor at most `credits` calls may be unanswered, with
/// `credit_bytes` of arguments, or one call of any size; an actor's mailbox therefore holds at most
/// so many for each calling process. Calls that fail with their link and are still in a mailbox
/// leave it before those that come on the next link. Answers whose callbacks are due (see
/// callbacks()) count like unanswered calls, with the bytes of the answers; one more may slip in
/// for each thread that brings answers. A call beyond that waits until an answer comes in or a
/// callback begins. So does one while its link has more queued than the transport allows
/// (Link::send), which all actors of the process share. It waits at most `credit_timeout` in all,
/// then fails with resource_exhausted; on a thread that runs a callback (see runs_callback) it
/// fails at once.
///
/// Size: a call or an answer above the transport's limit of a frame fails by itself with
/// invalid_argument; others on the same connection go on.
///
/// Death: a process answers each call that reaches it, or else its connection ends after its last
/// answer. So a call is known to be unanswered only once its connection has ended: then it fails
/// with the cause if supervision reports it within `cause_grace`: actor_died if the actor is gone,
/// and actor_unavailable if it is started again, or if nobody says why the connection ended. So
/// does a call to an actor that has left a process which goes on. Later calls to an actor that is
/// gone fail at once.
///
/// Restarts: calls to an actor that may be started again go to its latest incarnation. While there
/// is none they are kept, in order and within the credits; so they are while calls that may be made
/// again have not come back from the incarnation before, for `handover_limit` at most.
///
/// Retries: a call with max_retries keeps its arguments, its credit and its place in the order of
/// calls until it is answered. When its connection ends and its actor lives, it is sent again on a
/// new connection, before calls that are made later, and the process of the actor runs it once
/// however often it comes (AnswerTable). When the actor is started again, the next incarnation runs
/// it, though the last one may have. Each is one retry; links that end before they brought an
/// answer are the same try, for `reconnect_limit`. Other calls are never sent twice: one that is
/// unanswered when its connection or its incarnation ends fails, and may have run or not.
///
/// Deadlines: a call that is not answered at its deadline fails with timed_out. It keeps its credit
/// until its actor's process, which has been told the time that remained, answers for it.
///
/// Time: a call, its answer and its cancelling take constant time here and in the actor's process,
/// but for one that waits here for its actor, which is looked for among those that do; the end of
/// an actor or of a link takes time for its own calls alone, however many there are to others.
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
    /// See Retries.
    std::chrono::milliseconds reconnect_limit{10000};
    /// See Restarts. Counts from the end of the last incarnation: once the next one is there, calls
    /// that the last one has not answered by then are taken from it.
    std::chrono::milliseconds handover_limit{1000};
    /// So many bytes of answers are kept for each calling process that may ask for them again.
    std::size_t kept_answer_bytes = std::size_t{64} << 20;
    /// Answers are kept so long for a process that has no connection any more.
    std::chrono::milliseconds kept_answer_limit{60000};
    /// How long stop() waits for a callback that does not return; then it is left behind with its
    /// thread, which an error in the log tells, and those behind it are dropped. The same counts
    /// for each callback of a watch.
    std::chrono::milliseconds callback_grace = troupe::callback_grace;
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
  /// actor_died.
  virtual void add_target(ActorId id, std::shared_ptr<CallTarget> target) = 0;
  virtual void remove_target(ActorId id) = 0;
  /// The same for a target that was killed and may run a method still, unless another one has taken
  /// its place: calls of this process to it that may be made again do not wait for its answers.
  virtual void abandon_target(ActorId id, const CallTarget& target) = 0;

  /// Calls method number `method` of the actor at `address`.
  virtual CallTicket call(const ActorAddress& address, std::uint16_t method, Bytes arguments,
                          CallCompletion completion, const CallTerms& terms) = 0;
  CallTicket call(const ActorAddress& address, std::uint16_t method, Bytes arguments,
                  CallCompletion completion) {
    return call(address, method, std::move(arguments), std::move(completion), CallTerms());
  }

  /// Cancels a call that this hub returned the ticket of. One that has not begun to run is answered
  /// with `cancelled`; a running method may see it (CallScope), and its answer counts. Nothing
  /// happens to a call that is answered, or whose process cannot be told.
  virtual void cancel(const CallTicket& ticket) = 0;

  /// The thread on which the callbacks of futures run.
  virtual const std::shared_ptr<CallbackThread>& callbacks() const = 0;

  /// Runs `task` after `delay` on a thread of the runtime, as a callback (runs_callback); never
  /// after stop(). It must not block.
  virtual void run_after(std::chrono::milliseconds delay, std::function<void()> task) = 0;

  /// Marks an actor as gone, with a text for a person: later calls fail with actor_died, and calls
  /// under way as described above. The first text counts.
  virtual void mark_down(ActorId id, std::string why) = 0;

  /// The same for one incarnation of an actor that is started again: calls under way to it fail,
  /// later ones wait for the next incarnation.
  virtual void mark_restarting(ActorId id, std::uint32_t incarnation, std::string why) = 0;
  /// Marks where an incarnation of a restartable actor is; the latest counts. Calls that have
  /// waited for it are sent.
  virtual void mark_moved(const ActorAddress& address) = 0;

  /// Waits until all answers and calls sent so far are with the kernel, which delivers them even if
  /// this process ends. Calls that wait for their actor or for credits are not sent yet. Errors:
  /// timed_out. Not in a callback.
  virtual Result<void> flush(std::chrono::milliseconds timeout) = 0;

  /// Closes everything, fails all unanswered calls with `cancelled`, and waits for the callbacks
  /// that are due (Options::callback_grace). No other one runs afterwards. Called by the owner
  /// before it drops the last reference; idempotent.
  virtual void stop() = 0;

  /// Counts this process's calls and records them on request.
  virtual const std::shared_ptr<CallObserver>& observer() const = 0;
  /// The object store of this process, by which references to objects are decoded. Set before the
  /// first call.
  void set_objects(std::weak_ptr<ObjectStore> objects) { objects_ = std::move(objects); }
  std::shared_ptr<ObjectStore> objects() const { return objects_.lock(); }
  /// Refers to this hub as long as it lives: for whoever would make such a pointer for each call.
  const std::weak_ptr<CallHub>& weak() const { return weak_; }

 private:
  std::weak_ptr<ObjectStore> objects_;
  std::weak_ptr<CallHub> weak_;
};

}  // namespace troupe
