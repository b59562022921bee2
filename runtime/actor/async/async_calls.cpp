#include "runtime/actor/async/async_calls.hpp"

#include <algorithm>
#include <utility>

#include "runtime/actor/async/stream_outlet.hpp"
#include "runtime/call/call_scope.hpp"

namespace troupe {
namespace {

constexpr std::chrono::seconds sweep_every{2};

/// True if the call came over a link that has ended.
bool has_left(const std::weak_ptr<const void>& caller) {
  const std::weak_ptr<const void> none;
  const bool is_remote = caller.owner_before(none) || none.owner_before(caller);
  return is_remote && caller.expired();
}

}  // namespace

class AsyncCalls::Sweeper final : public ActorTask {
 public:
  explicit Sweeper(AsyncCalls& calls) : calls_(calls) {}
  void run_on_actor() noexcept override { calls_.sweep(); }

 private:
  AsyncCalls& calls_;  ///< outlives it: tasks do not run after the actor's end
};

AsyncCalls::AsyncCalls(ActorObject& object, Options options)
    : object_(object), options_(std::move(options)), concurrency_(object.concurrency()) {
  groups_.push_back({options_.max_concurrency, 0, {}});
  for (const std::size_t limit : concurrency_.limits) groups_.push_back({limit, 0, {}});
}

AsyncCalls::~AsyncCalls() = default;

void AsyncCalls::begin(IncomingCall call) {
  if (call.method == stream_pull_method || call.method == stream_close_method) {
    options_.load->on_dropped(call.method);
    return call.method == stream_pull_method ? pull(std::move(call)) : close(std::move(call));
  }
  Group& group = groups_[concurrency_.group_of(call.method)];
  if (group.under_way >= group.limit || !group.queue.empty()) {
    if (call.cancel.is_cancelled()) return options_.load->on_dropped(call.method);
    queue(group, std::move(call));
  } else {
    start(group, std::move(call));
  }
}

void AsyncCalls::drop(const CancelToken& cancelled) {
  for (Group& group : groups_) {
    const auto call = group.queue.take(cancelled);
    if (!call) continue;
    note_unqueued(*call);
    return options_.load->on_dropped(call->method);
  }
}

bool AsyncCalls::begin_queued() {
  while (may_start_ > 0) {
    Group& group = groups_[may_start_ - 1];
    if (group.under_way < group.limit && !group.queue.empty()) {
      IncomingCall call = group.queue.pop();
      note_unqueued(call);
      start(group, std::move(call));
      return true;
    }
    --may_start_;
  }
  return false;
}

void AsyncCalls::start(Group& group, IncomingCall call) {
  if (!concurrency_.is_coroutine(call.method)) return options_.run_plain(call);
  // Calls that run at the same time would not nest in a timeline: it has their parts (on_pause).
  const ActorLoad::Running running{call.id, call.method, call.queued_ns, 0};
  // First: a plain function that returns an Async runs in begin().
  if (!may_begin(call, options_.actor_name)) return options_.load->on_ended(running);
  Registrations registrations;
  auto made = [&] {
    const CallScope scope(call);
    const RegistrationScope registering;
    auto begun = object_.begin(call.method, call.arguments, options_.hub);
    registrations = registering.open();
    return begun;
  }();
  if (!made.ok()) {
    options_.load->on_ended(running);
    return call.answer(std::move(made).error());
  }
  CoroutineCall& coroutine = **made;
  UnderWay under_way{*std::move(made), {}, {}, std::move(call.caller), &group, running};
  if (StreamOutlet* const outlet = coroutine.outlet()) {
    if (!streams_.emplace(outlet->id(), &coroutine).second) {
      options_.load->on_ended(running);
      return call.answer(fail(ErrorCode::invalid_argument, "this stream is open already"));
    }
    // As every first answer (HostServices::answer): references in the arguments are registered.
    outlet->pull(0, CallReply([answer = options_.answer, reply = std::move(call.answer),
                               registrations = std::move(registrations)](CallAnswer batch) {
                   answer(reply, std::move(batch), registrations);
                 }));
    sweep_soon();
  } else {
    under_way.answer = std::move(call.answer);
    under_way.registrations = std::move(registrations);
  }
  ++group.under_way;
  calls_.emplace(&coroutine, std::move(under_way));
  coroutine.start(*this, call);
}

void AsyncCalls::on_pause(CoroutineCall& call) {
  if (part_begin_ns_ != 0) {
    UnderWay& under_way = calls_.at(&call);
    options_.load->end_part(under_way.running, part_begin_ns_, under_way.has_paused);
    under_way.has_paused = true;
  }
  if (StreamOutlet* const outlet = call.outlet()) return on_stream_pause(call, *outlet);
  if (!call.method().done()) return;
  auto node = calls_.extract(&call);
  leave_group(node.mapped());
  auto result = call.take_answer();
  node.mapped().coroutine.reset();
  options_.answer(node.mapped().answer, std::move(result), node.mapped().registrations);
}

void AsyncCalls::on_stream_pause(CoroutineCall& call, StreamOutlet& outlet) {
  if (!outlet.is_finished()) return;
  UnderWay& under_way = calls_.at(&call);
  if (under_way.group != nullptr) {
    leave_group(under_way);
    call.destroy();
  }
  if (outlet.is_delivered()) forget(call);
}

void AsyncCalls::leave_group(UnderWay& call) {
  Group* const group = std::exchange(call.group, nullptr);
  if (group == nullptr) return;
  --group->under_way;
  options_.load->on_ended(call.running);
  const auto number = static_cast<std::size_t>(group - groups_.data()) + 1;
  if (!group->queue.empty()) may_start_ = std::max(may_start_, number);
}

void AsyncCalls::forget(CoroutineCall& call) {
  const auto node = calls_.extract(&call);
  leave_group(node.mapped());
  if (const StreamOutlet* const outlet = call.outlet()) streams_.erase(outlet->id());
  call.destroy();
}

void AsyncCalls::pull(IncomingCall call) {
  const auto request = decode<StreamPull>(call.arguments);
  if (!request.ok()) return call.answer(request.error());
  const auto found = streams_.find(request->id);
  if (found == streams_.end()) {
    return call.answer(
        fail(ErrorCode::actor_died, "the actor has no such stream: it was started again since"));
  }
  CoroutineCall& coroutine = *found->second;
  StreamOutlet& outlet = *coroutine.outlet();
  outlet.pull(request->read, std::move(call.answer));
  if (const auto producer = outlet.take_parked()) return coroutine.resume(producer);
  on_stream_pause(coroutine, outlet);
}

void AsyncCalls::close(IncomingCall call) {
  const auto request = decode<StreamClose>(call.arguments);
  if (!request.ok()) return call.answer(request.error());
  if (const auto found = streams_.find(request->id); found != streams_.end()) {
    found->second->outlet()->refuse(fail(ErrorCode::cancelled, "the stream's reader is gone"));
    forget(*found->second);
  } else {
    refuse_queued(request->id);
  }
  call.answer(Bytes{});
}

void AsyncCalls::queue(Group& group, IncomingCall call) {
  if (const auto id = stream_of(call)) queued_streams_.emplace(*id, call.cancel);
  group.queue.push(std::move(call));
}

void AsyncCalls::note_unqueued(const IncomingCall& call) {
  if (const auto id = stream_of(call)) queued_streams_.erase(*id);
}

std::optional<StreamId> AsyncCalls::stream_of(const IncomingCall& call) const {
  if (!concurrency_.opens_stream(call.method)) return std::nullopt;
  StreamOpen open;
  Decoder(call.arguments)(open);
  return open.id;
}

void AsyncCalls::refuse_queued(StreamId id) {
  const auto queued = queued_streams_.extract(id);
  if (queued.empty()) return;
  for (Group& group : groups_) {
    const auto refused = group.queue.take(queued.mapped());
    if (!refused) continue;
    options_.load->on_dropped(refused->method);
    return refused->answer(fail(ErrorCode::cancelled, "the stream's reader is gone"));
  }
}

void AsyncCalls::sweep_soon() {
  if (std::exchange(is_sweeping_, true)) return;
  options_.timers->add(ActorTimers::Clock::now() + sweep_every, std::make_shared<Sweeper>(*this));
}

void AsyncCalls::sweep() {
  std::vector<CoroutineCall*> left;
  for (const auto& [id, call] : streams_) {
    if (has_left(calls_.at(call).caller)) left.push_back(call);
  }
  for (CoroutineCall* const call : left) forget(*call);
  is_sweeping_ = false;
  if (!streams_.empty()) sweep_soon();
}

void AsyncCalls::end(const Error& why) {
  streams_.clear();
  auto calls = std::exchange(calls_, {});
  std::vector<CallReply> answers;
  for (auto& [coroutine, call] : calls) {
    coroutine->destroy();
    if (StreamOutlet* const outlet = coroutine->outlet()) {
      outlet->refuse(why);
    } else {
      answers.push_back(std::move(call.answer));
    }
  }
  for (const auto& answer : answers) answer(CallAnswer::of_ended_actor(why));
  queued_streams_.clear();
  for (Group& group : groups_) {
    for (auto& call : group.queue.take_all()) call.answer(CallAnswer::of_ended_actor(why));
  }
}

}  // namespace troupe
