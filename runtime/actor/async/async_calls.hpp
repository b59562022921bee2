#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/actor/actor_types.hpp"
#include "runtime/actor/async/concurrency_groups.hpp"
#include "runtime/actor/async/coroutine_call.hpp"
#include "runtime/call/call_hub.hpp"
#include "runtime/call/call_queue.hpp"
#include "runtime/object/registration_scope.hpp"

namespace troupe {

/// The calls of an actor whose class has coroutines: those under way, and those that wait for their
/// turn because their group has as many under way as it may. Used on the actor's thread only.
class AsyncCalls final : CoroutineHost {
 public:
  struct Options {
    std::weak_ptr<ActorExecutor> executor;
    std::shared_ptr<ActorTimers> timers;
    std::weak_ptr<CallHub> hub;
    std::shared_ptr<ActorLoad> load;
    std::string actor_name;
    std::size_t max_concurrency = 1000;  ///< of the default group
    /// Runs a method that is not a coroutine, and answers.
    std::function<void(IncomingCall&)> run_plain;
    /// HostServices::answer.
    std::function<void(const CallReply&, CallAnswer, const Registrations&)> answer;
  };
  AsyncCalls(ActorObject& object, Options options);
  ~AsyncCalls();

  /// Starts the call, or queues it. Calls of one group start in the order in which they come.
  void begin(IncomingCall call);
  /// Starts one of the queued calls; false if none may start now.
  bool begin_queued();
  /// That call was cancelled: it is queued no more.
  void drop(const CancelToken& cancelled);
  /// Destroys all coroutines and answers all calls with `why`, as those of an ended actor.
  void end(const Error& why);

 private:
  struct Group {
    std::size_t limit = 0;
    std::size_t under_way = 0;
    CallQueue<> queue;
  };
  struct UnderWay {
    std::unique_ptr<CoroutineCall> coroutine;
    CallReply answer{};                ///< none for a stream
    Registrations registrations{};     ///< of its arguments
    std::weak_ptr<const void> caller;  ///< of a stream
    Group* group = nullptr;            ///< null once it has ended
    ActorLoad::Running running{};
    bool has_paused = false;
  };
  class Sweeper;

  const std::weak_ptr<ActorExecutor>& executor() const override { return options_.executor; }
  const std::shared_ptr<ActorTimers>& timers() const override { return options_.timers; }
  void on_resume() override { part_begin_ns_ = options_.load->begin_part(); }
  void on_pause(CoroutineCall& call) override;

  void start(Group& group, IncomingCall call);
  void on_stream_pause(CoroutineCall& call, StreamOutlet& outlet);
  void pull(IncomingCall call);
  void close(IncomingCall call);
  /// Has a call wait for its turn. A stream that it opens can be closed meanwhile.
  void queue(Group& group, IncomingCall call);
  /// A call has left its queue.
  void note_unqueued(const IncomingCall& call);
  /// The stream that the call opens; nothing for other calls.
  std::optional<StreamId> stream_of(const IncomingCall& call) const;
  /// Refuses a queued call that would open the stream.
  void refuse_queued(StreamId id);
  /// It takes no more of its group's limit.
  void leave_group(UnderWay& call);
  void forget(CoroutineCall& call);
  void sweep_soon();
  /// Ends the streams whose readers' processes are gone.
  void sweep();

  ActorObject& object_;
  const Options options_;
  const ClassConcurrency concurrency_;
  std::vector<Group> groups_;
  std::size_t may_start_ = 0;  ///< groups to look at for calls that may start
  std::unordered_map<CoroutineCall*, UnderWay> calls_;
  std::unordered_map<StreamId, CoroutineCall*> streams_;
  std::unordered_map<StreamId, CancelToken> queued_streams_;  ///< by calls in the queues of groups
  bool is_sweeping_ = false;
  std::int64_t part_begin_ns_ = 0;  ///< of the coroutine that runs; 0 if that is not recorded
};

}  // namespace troupe
