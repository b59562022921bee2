#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/base/intrusive_list.hpp"
#include "runtime/call/answer_table.hpp"
#include "runtime/call/call_deadlines.hpp"
#include "runtime/call/call_frame.hpp"
#include "runtime/call/call_hub.hpp"
#include "runtime/call/callback.hpp"
#include "runtime/call/called_actors.hpp"
#include "runtime/call/open_calls.hpp"
#include "runtime/call/remote_call.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

/// The one implementation of CallHub: calls and answers are in call_hub.cpp, calls within the
/// process in call_hub_local.cpp, what comes from other processes in call_hub_incoming.cpp, the
/// ends and restarts of actors and connections in call_hub_ends.cpp, and what is sent again in
/// call_hub_resends.cpp.
class HubImpl final : public CallHub {
 public:
  /// So many calling processes are known by the calls that they may send again.
  static constexpr std::size_t max_callers = 65536;

  HubImpl(std::unique_ptr<Transport> transport, Options options)
      : options_(std::move(options)),
        transport_(std::move(transport)),
        answers_(std::make_shared<AnswerTable>(options_.kept_answer_bytes, max_callers)),
        called_(options_.remembered_ends) {}
  ~HubImpl() override { stop(); }

  Result<void> start() {
    TROUPE_CHECK(random_bytes(std::as_writable_bytes(std::span(&caller_, 1))));
    deadlines_ = std::make_shared<CallDeadlines>([this](CallDeadline when) { wake_at(when); });
    const auto on_begin = [weak = weak_from_this()](ActorId source) {
      const auto hub = std::static_pointer_cast<HubImpl>(weak.lock());
      if (!hub) return;
      std::lock_guard lock(hub->mutex_);
      hub->wake_for_credit(source);
    };
    TROUPE_TRY(callbacks_, CallbackThread::start(on_begin, options_.callback_grace));
    return transport_->start(
        {[this](const std::shared_ptr<Link>& link, Bytes& frame) { on_frame(link, frame); },
         [this](const std::shared_ptr<Link>& link, const Error& why) { on_closed(link, why); }});
  }

  const std::string& endpoint() const override { return transport_->endpoint(); }

  void add_target(ActorId id, std::shared_ptr<CallTarget> target) override {
    std::lock_guard lock(mutex_);
    Callee& callee = callees_[id];
    callee.target = std::move(target);
    if (!waiting_for_credit_.contains(id)) callee.open.ask_no_more();
  }

  void remove_target(ActorId id) override {
    std::shared_ptr<CallTarget> removed;  // destroyed without the lock
    std::lock_guard lock(mutex_);
    const auto found = callees_.find(id);
    if (found == callees_.end()) return;
    removed = std::move(found->second.target);
    found->second.open.ask_to_be_told();  // for the last answer
    forget_if_over(found);
  }

  void abandon_target(ActorId id, const CallTarget& target) override;
  CallTicket call(const ActorAddress& address, std::uint16_t method, Bytes arguments,
                  CallCompletion completion, const CallTerms& terms) override;
  void cancel(const CallTicket& ticket) override;
  const std::shared_ptr<CallbackThread>& callbacks() const override { return callbacks_; }
  void run_after(std::chrono::milliseconds delay, std::function<void()> task) override {
    transport_->run_after(delay, [task = std::move(task)] { run_callback(task); });
  }
  void mark_down(ActorId id, std::string why) override;
  void mark_restarting(ActorId id, std::uint32_t incarnation, std::string why) override;
  void mark_moved(const ActorAddress& address) override;
  Result<void> flush(std::chrono::milliseconds timeout) override {
    return transport_->flush(timeout);
  }
  void stop() override;
  const std::shared_ptr<CallObserver>& observer() const override { return observer_; }

 private:
  /// What it takes to send a call again.
  struct Resend {
    ActorAddress address{};  ///< where it was sent to
    std::uint16_t method = 0;
    std::shared_ptr<const Bytes> arguments;
    CallDeadline deadline = no_deadline;
    int left = 0;  ///< retries; -1: without end
    std::uint32_t first_generation =
        0;  ///< of the link on which this incarnation was sent it first
    std::optional<Deadline> reconnect{};  ///< since its link broke, until when it is one try
    bool is_cancelled = false;
  };

  struct Peer;
  /// A call that has been sent. Small: with its node in a map it is among the blocks that malloc
  /// has at hand (128 bytes), without which a call takes 10 % longer.
  struct Pending {
    CallId id = 0;
    ActorId actor = 0;
    std::size_t bytes = 0;          ///< of its arguments
    std::uint32_t incarnation = 0;  ///< that it was sent to
    bool is_local = false;          ///< it was in this process: its error names the actor
    // While its link may bring the answer.
    bool is_lost = false;  ///< the end of its actor, or of the incarnation, was reported
    Peer* peer = nullptr;
    ListHook<Pending> of_peer{}, of_actor{};

    CallCompletion completion;
    std::unique_ptr<Resend> resend;  ///< null: it must not run twice
  };
  static_assert(sizeof(Pending) <= 104);
  using PendingCalls = std::unordered_map<CallId, Pending>;
  using CallsOfPeer = IntrusiveList<Pending, &Pending::of_peer>;
  using CallsOfActor = IntrusiveList<Pending, &Pending::of_actor>;

  /// A link that this process opened, with its unanswered calls.
  struct Peer {
    std::string endpoint;
    std::shared_ptr<Link> link;
    std::uint32_t generation = 0;
    CallsOfPeer calls;
    std::uint64_t answers = 0;         ///< count of all answers so far
    std::vector<CallId> acknowledged;  ///< resendable calls whose answers have come; not told yet
    bool is_closed = false;
  };

  /// A call that is to be sent.
  struct OutgoingCall {
    CallId id = 0;
    std::uint16_t method = 0;
    Bytes arguments{};  ///< empty if `resend` has them
    std::size_t bytes = 0;
    CallCompletion completion;
    CallDeadline deadline = no_deadline;
    std::unique_ptr<Resend> resend{};
  };
  struct WaitingCall {
    ActorAddress address;
    OutgoingCall call;  ///< without completion: it is being sent
    bool was_sent = false;
  };
  class LocalCall;
  /// What a call within the process keeps of its actor.
  struct LocalActor {
    ActorId id = 0;
    std::uint32_t incarnation = 0;
    bool is_restartable = false;
  };
  /// A call within the process that may be made again.
  struct LocalResend {
    std::weak_ptr<LocalCall> call;
    const CallTarget* target = nullptr;  ///< for comparisons only
  };

  /// Where a restartable actor is, or any actor while calls to it wait to be sent again.
  struct Route {
    std::string endpoint;           ///< empty: not known, or the actor is not there
    std::uint32_t incarnation = 0;  ///< that is there or is awaited
    std::string last_cause;         ///< of the end of the incarnation before
    std::chrono::steady_clock::time_point last_end{};  ///< when that was heard of
    bool is_restartable = false;
    int failures = 0;  ///< links in a row that brought no answer
    /// Those that were sent before, by their ids; then the others, as they came.
    std::deque<WaitingCall> waiting;
  };

  /// How long a call may wait in all, for its credit and then for room on the link. Looks at the
  /// clock from the first wait on.
  class Patience {
   public:
    explicit Patience(std::chrono::nanoseconds limit) : limit_(limit) {}
    Deadline& begin_wait() { return deadline_ ? *deadline_ : deadline_.emplace(limit_); }
    std::chrono::nanoseconds left() { return deadline_ ? deadline_->left() : limit_; }

   private:
    const std::chrono::nanoseconds limit_;
    std::optional<Deadline> deadline_;
  };

  /// An actor of this process, or one that it calls.
  struct Callee {
    std::shared_ptr<CallTarget> target;  ///< of an actor of this process
    OpenCalls open;
    struct Remote {
      std::weak_ptr<Peer> peer;  ///< the link that its calls go through
      bool is_followed = false;  ///< on_first_call was called, and no end was reported since
      /// The calls on links that may be made again: how many were sent to this incarnation, the
      /// latest, and how many to earlier ones.
      std::uint32_t incarnation = 0;
      std::size_t to_latest = 0, to_earlier = 0;
      CallsOfActor calls;  ///< that are with links
      std::string name;    ///< of the actor

      std::size_t sent_before(std::uint32_t next) const {
        return to_earlier + (incarnation < next ? to_latest : 0);
      }
    };
    std::unique_ptr<Remote> remote;  ///< null before it is called in another process

    Remote& elsewhere(const ActorAddress& address) {
      if (!remote) remote = std::make_unique<Remote>();
      if (remote->name.empty()) remote->name = address.name;
      return *remote;
    }
    /// True for the first time.
    bool follow(const ActorAddress& address) {
      return !std::exchange(elsewhere(address).is_followed, true);
    }
    /// Whether calls that may be made again are still with an incarnation before this one, which is
    /// there or awaited. Calls to this one wait meanwhile, so that they do not overtake these.
    bool is_held(std::uint32_t next) const {
      return remote != nullptr && remote->sent_before(next) > 0;
    }
  };
  using Callees = std::unordered_map<ActorId, Callee>;

  /// `has_limit`: waits until there is credit. Returns the callee, which stays until the call is
  /// settled.
  Result<Callee*> take_credit(const ActorAddress& address, std::size_t bytes, bool has_limit,
                              Patience& patience, std::unique_lock<std::mutex>& lock);
  /// Waits until `is_settled()`, which is looked at whenever credit of the actor comes back; false
  /// after the patience. mutex_ is held by `lock`.
  bool wait_for_credit(ActorId actor, Patience& patience, std::unique_lock<std::mutex>& lock,
                       const std::function<bool()>& is_settled);
  /// Lets the first that waits for the actor's credit look again, if there is some.
  void wake_for_credit(ActorId actor);
  void give_credit(ActorId actor, std::size_t bytes);
  /// The same for a local actor: somebody waits for the credit, or it was the last call of an actor
  /// that has left. Takes mutex_.
  void on_credit_back(ActorId actor);
  /// mutex_ is held, as for the next ones.
  void forget_if_over(Callees::iterator found) {
    const Callee& callee = found->second;
    if (callee.target || callee.open.calls() > 0) return;
    if (callee.remote && callee.remote->is_followed) return;
    if (!waiting_for_credit_.empty() && waiting_for_credit_.contains(found->first)) return;
    callees_.erase(found);
  }
  bool has_credit(ActorId actor, const OpenCalls& open, std::size_t bytes) const {
    const auto due = callbacks_->backlog(actor);
    const std::size_t count = open.calls() + due.callbacks;
    return count == 0 ||
           (count < options_.credits && open.bytes() + due.bytes + bytes <= options_.credit_bytes);
  }
  bool has_credit(ActorId actor, std::size_t bytes) const {
    static const OpenCalls none;
    const auto found = callees_.find(actor);
    return has_credit(actor, found == callees_.end() ? none : found->second.open, bytes);
  }
  /// Of a call that has its credit, which `open` counts.
  CallTicket call_local(const ActorAddress& address, OutgoingCall call, OpenCalls& open,
                        const std::shared_ptr<CallTarget>& target);
  void on_local_answer(OutgoingCall call, OpenCalls& open, LocalActor actor, CallAnswer answer);
  void forget_local_call(ActorId actor, CallId id);  ///< mutex_ is held
  /// Sends a call that has its credit to another process, after a wait for room on the link; mutex_
  /// is held by `lock`, and released. Endpoint and incarnation are the latest.
  void call_remote(const ActorAddress& address, Callee& callee, const std::string& endpoint,
                   std::uint32_t incarnation, OutgoingCall call, Patience& patience,
                   std::unique_lock<std::mutex> lock);
  /// The link to that endpoint, opened if there is none; null if there can be none. mutex_ is held.
  std::shared_ptr<Peer> peer_at(const std::string& endpoint);
  /// Where calls to the actor go, if that is not simply its address; mutex_ is held.
  Route* route_of(const ActorAddress& address);
  /// Sends the calls that have waited for the actor, as long as it is there.
  void send_waiting(ActorId actor);
  /// Moves the calls that wait for the actor to `calls`; mutex_ is held.
  void take_waiting(Route& route, PendingCalls& calls);
  /// Takes one of them out; mutex_ is held.
  std::optional<WaitingCall> take_waiting(ActorId actor, CallId call);
  static Pending pending_of(const ActorAddress& address, std::uint32_t incarnation,
                            OutgoingCall call);
  static Pending pending_of(WaitingCall waiting) {
    return pending_of(waiting.address, waiting.address.incarnation, std::move(waiting.call));
  }

  /// Whether a call that was sent now would overtake others that wait for the actor, or that are to
  /// come back from its last incarnation. mutex_ is held, as for what follows.
  bool overtakes(ActorId actor, const Callee& callee) const {
    if (!callee.remote || routes_.empty()) return false;  // no call to it can wait
    const auto route = routes_.find(actor);
    return route != routes_.end() &&
           (!route->second.waiting.empty() || callee.is_held(route->second.incarnation));
  }
  /// Adds a call to those of its actor and of the link that it is sent over.
  void add_pending(Callee::Remote& remote, Peer& peer, Pending pending);
  /// Takes a call off its link: it is over, or is sent again.
  PendingCalls::node_type take_pending(PendingCalls::const_iterator at);
  /// Takes the calls that may be made again from the incarnations before this one, which is there.
  void take_back(ActorId actor, std::uint32_t incarnation);

  /// Puts a call whose link has ended back among those that wait for the actor, if it may be sent
  /// again; false if not. `actor_left`: its process has said so. mutex_ is held.
  bool resend(CallId id, Pending& pending, bool had_answers, bool actor_left);
  /// Has the calls sent that resend() has put back, after a pause.
  void resend_later(ActorId actor);
  /// A call is over: gives its credit back, and its process may forget its answer. mutex_ is held.
  void settle(CallId id, const Pending& pending);
  /// The same for one whose answer has not come: its process, which may have it queued, is told at
  /// once, so before it gets calls that have the credit.
  void give_up(CallId id, const Pending& pending);
  void send_acknowledgements(const std::weak_ptr<Peer>& to);
  /// Keeps the numbers of calls that are over until there is a link to say it on.
  void acknowledge_later(const std::string& endpoint, std::span<const CallId> calls);
  void wake_at(CallDeadline when);

  /// Why the actor that the call was sent to is gone, or null; mutex_ is held.
  const std::string* cause_of_end(const Pending& call) const;
  void on_frame(const std::shared_ptr<Link>& link, Bytes& frame);
  const std::shared_ptr<IncomingLink>& incoming(const std::shared_ptr<Link>& link);
  void on_hello(const std::shared_ptr<Link>& link, const Trailer& trailer);
  void on_call(const std::shared_ptr<Link>& link, const Trailer& trailer, Bytes& body);
  void on_cancel(const std::shared_ptr<Link>& link, const Trailer& trailer);
  void on_acknowledge(const std::shared_ptr<Link>& link, std::span<const std::byte> body);
  /// Nobody waits for these calls: those that have not begun leave their mailboxes.
  template <class Call>
  void withdraw(const std::vector<std::shared_ptr<Call>>& calls);
  /// What a caller may ask for, unless it opens another link than this one, its latest.
  void forget_caller_later(CallerId caller, std::uint32_t generation);
  /// The end of a link that the other side opened.
  void forget_incoming(const std::shared_ptr<Link>& link);
  std::shared_ptr<CallTarget> target_of(ActorId actor);
  void cancel_incoming(ActorId actor, const std::shared_ptr<IncomingCallState>& call);
  void on_answer(const std::shared_ptr<Link>& link, const Trailer& trailer, Bytes& body);
  void on_closed(const std::shared_ptr<Link>& link, const Error& why);
  void fail_all(const PendingCalls& calls, ErrorCode code, const std::string& why);
  /// The error of a call that ends with `code`, or for what is known of its actor's end; mutex_ is
  /// held.
  Error error_of_end(const Pending& call, ErrorCode code, const std::string& why) const;
  struct Orphan {
    ActorId actor = 0;
    CallId call = 0;
  };
  /// Fails those of the orphans that are still there after `cause_grace`.
  void wait_for_cause(std::vector<Orphan> calls, ErrorCode code, std::string message);
  /// Sees to the unanswered calls of an actor that is marked down, or of an incarnation of it;
  /// mutex_ is held by `lock`, and released.
  void end_calls(ActorId actor, std::unique_lock<std::mutex> lock);
  /// Fails the calls to an actor that is marked down once their peer has been silent for a whole
  /// `last_answer_timeout`; `answers` is the peer's count at the beginning of that time.
  void wait_for_last_answers(ActorId actor, std::weak_ptr<Peer> peer, std::uint64_t answers);

  const Options options_;
  std::shared_ptr<CallbackThread> callbacks_;
  const std::unique_ptr<Transport> transport_;
  const std::shared_ptr<AnswerTable> answers_;
  std::shared_ptr<CallDeadlines> deadlines_;
  CallerId caller_ = 0;
  /// Links by which calls came; of the transport's thread.
  std::unordered_map<Link*, std::shared_ptr<IncomingLink>> incoming_;
  /// The same: those of a caller that are open or have unanswered calls, the latest last.
  std::unordered_map<CallerId, std::vector<std::weak_ptr<IncomingLink>>> links_of_caller_;
  std::atomic<CallId> next_call_ = CallObserver::first_call();
  const std::shared_ptr<CallObserver> observer_ = std::make_shared<CallObserver>();

  std::mutex mutex_;
  /// One for each thread that waits for an actor's credit, in the order in which they came.
  std::unordered_map<ActorId, std::list<std::condition_variable>> waiting_for_credit_;
  bool stopped_ = false;
  std::uint32_t generation_ = 0;      ///< of the latest link that was opened
  std::set<CallId> open_resendable_;  ///< the resendable calls that are not over
  std::unordered_map<std::string, std::vector<CallId>> unacknowledged_;  ///< by endpoint
  /// Those of this process, those with unanswered calls, and those that are followed and live.
  Callees callees_;
  /// Unanswered calls to actors of this process that may be made again.
  std::unordered_map<ActorId, std::map<CallId, LocalResend>> local_calls_;
  /// All calls that are with links. Nothing goes through them but stop(): each is in the lists of
  /// its actor and of its link, too.
  PendingCalls pending_;
  std::unordered_map<std::string, std::shared_ptr<Peer>> peers_;  ///< by endpoint
  std::unordered_map<Link*, std::shared_ptr<Peer>> peer_of_link_;
  /// The calls to each actor whose link has closed, or that has left its process, for a cause that
  /// is not known yet.
  std::unordered_map<ActorId, PendingCalls> orphans_;
  CalledActors called_;
  std::unordered_map<ActorId, Route> routes_;
};

}  // namespace troupe
