#include "runtime/node/agent_loop.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <thread>

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "runtime/base/available_memory.hpp"
#include "runtime/base/host_name.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/oom_kills.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/process/process_state.hpp"
#include "runtime/process/prompt_threads.hpp"
#include "runtime/security/handshake.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds stop_grace{1000};
/// For a driver that is reached to say what this agent is to do: it may be busy with hundreds.
constexpr milliseconds bootstrap_limit{30000};

/// The time that this thread has computed.
std::chrono::nanoseconds own_cpu_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

double in_ms(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

Result<void> AgentLoop::join(const NodeTicket& ticket, milliseconds patience) {
  AgentReady hello;
  hello.build = this_build();
  hello.node = ticket.node;
  hello.pid = ::getpid();
  hello.host = host_name();
  hello.cpus = usable_cpus();
  hello.memory_bytes = available_memory_bytes().value_or(0);
  TROUPE_TRY(driver_, ControlClient::connect(
                          ticket.key.bytes, ticket.host, ticket.port, hello,
                          {[this](ControlMessage message) { inbox_.push(std::move(message)); },
                           [this](const Error& why) { inbox_.lose_driver(why.message); }},
                          patience, [this] { return !is_stop_wanted(); }));
  TROUPE_TRY(bootstrap_, wait_for_bootstrap());
  TROUPE_TRY(keys_, JobKeys::from_secret(bootstrap_.secret.bytes));
  bootstrap_.secret = {};
  const auto& process = bootstrap_.processes;
  return log::open(process.process_name, process.log_path,
                   static_cast<log::Level>(process.log_level));
}

bool AgentLoop::is_stop_wanted() const {
  pollfd stop{stop_, POLLIN, 0};
  return ::poll(&stop, 1, 0) > 0;
}

Result<AgentBootstrap> AgentLoop::wait_for_bootstrap() {
  Deadline deadline(bootstrap_limit);
  while (!deadline.is_over()) {
    poll_once();
    if (auto message = inbox_.take()) {
      if (auto* bootstrap = std::get_if<AgentBootstrap>(&*message)) return std::move(*bootstrap);
      if (const auto* refused = std::get_if<AgentRefused>(&*message)) {
        return fail(ErrorCode::permission_denied, "{}", refused->why);
      }
      return fail(ErrorCode::permission_denied, "the driver gave orders before it let us in");
    }
    if (const auto lost = inbox_.driver_lost()) return Error{ErrorCode::peer_died, *lost};
    if (is_stopped_) return fail(ErrorCode::peer_died, "{}", why_stopped_);
  }
  return fail(ErrorCode::timed_out, "the driver has not said within {} ms what to do",
              bootstrap_limit.count());
}

int AgentLoop::run(const NodeTicket& ticket, milliseconds patience) {
  child_events_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!child_events_) return log::error("cannot make an epoll set: {}", std::strerror(errno)), 1;
  // Before this thread becomes a prompt one, which children would inherit.
  if (auto begun = starter_.begin(); !begun.ok()) return log::error("{}", begun.error().message), 1;
  const PromptThreads deaths_are_noticed_at_once;
  if (auto joined = join(ticket, patience); !joined.ok()) {
    log::error("the agent of node {} cannot join its job: {}", ticket.node, joined.error().message);
    return 1;
  }
  if (const auto kills = oom_kills()) oom_blame_.begin(kills->count);
  log::info("agent of node {} is ready", bootstrap_.processes.node);
  longest_hold_ = longest_work_ = {};
  while (true) {
    read_inbox();
    const auto lost = inbox_.driver_lost();
    if (lost && is_shutting_down_ && !is_stopped_) {
      // The driver waits no longer than it has said for processes that end slowly.
      log::info("the driver has ended; killing {} processes that have not", children_.size());
      kill_all();
      break;
    }
    if (is_stopped_ || lost) {
      log::warning("the agent ends, and {} processes with it: {}", children_.size(),
                   lost ? "the driver is gone (" + *lost + ")" : why_stopped_);
      kill_all();
      ::_exit(1);
    }
    if (!why_refused_.empty()) {
      log::error("this node is refused: {}", why_refused_);
      kill_all();
      return 1;
    }
    if (is_shutting_down_ && children_.empty()) break;
    poll_once();
  }
  log::info("agent of node {} ends as told; its loop was held for {:.2f} ms, worked for {:.2f} ms",
            bootstrap_.processes.node, in_ms(longest_hold_), in_ms(longest_work_));
  return 0;
}

void AgentLoop::read_inbox() {
  while (auto message = inbox_.take()) {
    const auto* start = std::get_if<StartActor>(&*message);
    const bool starts_process = start != nullptr && start->starts_process;
    on_driver_message(*std::move(message));
    if (starts_process) poll_once(false);
    if (is_stopped_) return;
  }
}

void AgentLoop::poll_once(bool may_wait) {
  pollfd polled[] = {{stop_, POLLIN, 0},
                     {inbox_.fd(), POLLIN, 0},
                     {starter_.fd(), POLLIN, 0},
                     {child_events_.get(), POLLIN, 0}};
  const auto left = std::chrono::ceil<milliseconds>(next_tick_ - Clock::now()).count();
  const auto wait = may_wait ? std::max<std::int64_t>(0, left) : 0;
  if (!is_shutting_down_) {
    longest_hold_ = std::max(longest_hold_, Clock::now() - polled_at_);
    longest_work_ = std::max(longest_work_, own_cpu_time() - cpu_at_poll_);
  }
  ::poll(polled, std::size(polled), static_cast<int>(wait));
  polled_at_ = Clock::now();
  cpu_at_poll_ = own_cpu_time();
  if (polled[0].revents != 0) is_stopped_ = true;
  if (polled[3].revents != 0) read_child_events();
  if (polled[2].revents != 0) {
    for (auto& started : starter_.take()) on_process_started(std::move(started));
  }
  start_next();
  if (Clock::now() >= next_tick_) tick();
}

void AgentLoop::read_child_events() {
  epoll_event events[64];  // more come with the next turn, those of other children first
  const int count = ::epoll_wait(child_events_.get(), events, std::size(events), 0);
  for (int i = 0; i < count; ++i) {
    const auto [process, is_end] = AgentChild::event_of(events[i].data.u64);
    const auto found = children_.find(process);
    if (found == children_.end()) continue;  // the event before was its end
    if (is_end) {
      on_child_end(found);
    } else {
      on_child_messages(process, found->second);
    }
  }
}

void AgentLoop::tick() {
  Clock::duration wait = std::min<Clock::duration>(heartbeat_interval, driver_->check_driver());
  if (oom_blame_.is_due(Clock::now())) {
    if (const auto kills = oom_kills()) oom_blame_.note(kills->count, Clock::now());
  }
  inquiries_.tick();
  if (!is_suspended_) {
    for (auto& [id, child] : children_) {
      child.tend();
      if (child.survives_kill()) tell_survivor(id, child);
      wait = std::min(wait, child.silence_left());
    }
  }
  next_tick_ = Clock::now() + wait;
}

void AgentLoop::tell_survivor(ProcessId id, const AgentChild& child) {
  const std::string state = describe_process_state(child.pid());
  log::error("process {} (pid {}) was killed and has not ended within {} ms: {}", child.name(),
             child.pid(), bootstrap_.kill_limit_ms, state);
  driver_->send(ProcessEnded{.process = id,
                             .pid = child.pid(),
                             .signalled = true,
                             .unresponsive = child.is_unresponsive(),
                             .code = SIGKILL,
                             .survives = state});
}

void AgentLoop::on_driver_message(ControlMessage message) {
  const auto child_of = [this](ProcessId id) -> AgentChild* {
    const auto found = children_.find(id);
    return found == children_.end() ? nullptr : &found->second;
  };
  if (auto* start = std::get_if<StartActor>(&message)) {
    start_actor(std::move(*start));
  } else if (const auto* stop = std::get_if<StopActor>(&message)) {
    if (AgentChild* child = child_of(stop->process)) child->send(*stop);
  } else if (const auto* end = std::get_if<StopProcess>(&message)) {
    AgentChild* child = child_of(end->process);
    if (child != nullptr && end->kill) child->kill();
    if (child != nullptr && !end->kill) child->stop(stop_grace);
  } else if (const auto* gone = std::get_if<ActorGone>(&message)) {
    const auto followers =
        gone->restarts ? followers_.of(gone->actor) : followers_.take(gone->actor);
    for (const ProcessId follower : followers) {
      if (AgentChild* child = child_of(follower)) child->send(message);
    }
  } else if (const auto* spawned = std::get_if<SpawnReply>(&message)) {
    if (AgentChild* child = child_of(spawned->process)) child->send(message);
  } else if (const auto* moved = std::get_if<ActorMoved>(&message)) {
    for (const ProcessId follower : followers_.of(moved->actor.id)) {
      if (AgentChild* child = child_of(follower)) child->send(message);
    }
  } else if (std::holds_alternative<NodeGone>(message)) {
    for (auto& [id, child] : children_) child.send(message);
  } else if (const auto* shutdown = std::get_if<Shutdown>(&message)) {
    is_shutting_down_ = true;
    for (const ProcessStart& start : std::exchange(starts_, {})) {
      fail_start(start.process, {ErrorCode::cancelled, "the cluster ends before it was started"});
    }
    for (auto& [id, child] : children_) child.stop(milliseconds(shutdown->timeout_ms));
  } else if (const auto* refused = std::get_if<AgentRefused>(&message)) {
    why_refused_ = refused->why;
  } else if (const auto* ask = std::get_if<AskProcesses>(&message)) {
    ask_processes(*ask);
  } else if (std::holds_alternative<Suspend>(message)) {
    suspend();
  } else if (std::holds_alternative<Resume>(message)) {
    resume();
  }
}

void AgentLoop::kill_all() {
  starts_.clear();
  kill_children();
  starter_.stop();  // waits for a start, which may hang with the program's file system
  for (auto& started : starter_.take()) on_process_started(std::move(started));
  kill_children();
}

void AgentLoop::kill_children() {
  std::vector<ChildProcess*> processes;
  for (auto& [id, child] : children_) {
    if (child.process() != nullptr) processes.push_back(child.process());
  }
  kill_and_reap(processes, milliseconds(5000));
}

/// Stops the processes together with the driver, so that their waits for each other and for the
/// driver do not run out.
void AgentLoop::suspend() {
  is_suspended_ = true;
  for (auto& [id, child] : children_) child.suspend();
  driver_->send(Suspended{});
}

void AgentLoop::resume() {
  is_suspended_ = false;
  for (auto& [id, child] : children_) child.resume();
}

bool AgentLoop::on_child_messages(ProcessId id, AgentChild& child) {
  auto messages = child.exchange();
  for (auto& message : messages) on_child_message(id, child, std::move(message));
  return !messages.empty();
}

void AgentLoop::on_child_message(ProcessId id, AgentChild& child, ChildChannel::Message message) {
  auto decoded = decode_message(message.bytes, ControlEdge::process_to_agent);
  if (!decoded.ok()) return log::error("process {}: {}", child.name(), decoded.error().message);
  if (!child.note_message(*decoded)) return refuse(child, *decoded);
  if (const auto* followed = std::get_if<FollowActor>(&*decoded)) {
    const bool is_first = followers_.add(followed->actor, id);
    if (!is_first && !followed->wants_address) return;  // the driver knows
  }
  if (const auto* request = std::get_if<RegionRequest>(&*decoded))
    return answer_region(id, child, *request);
  if (const auto* request = std::get_if<KeyRequest>(&*decoded)) {
    const std::string& asker = *child.find_actor(request->actor);
    return answer_key(child, request->request, channel_key(*keys_, asker, request->scope));
  }
  if (const auto* request = std::get_if<CallKeyRequest>(&*decoded)) {
    const Key listener = call_listener_key(*keys_, request->listener);
    return answer_key(child, request->request, call_pair_key(listener, child.call_name()));
  }
  if (std::holds_alternative<Heartbeat>(*decoded)) return;
  if (auto* report = std::get_if<ProcessReport>(&*decoded)) {
    report->process = id;
    report->pid = child.pid();
    report->name = child.name();
    return inquiries_.take(std::move(*report));
  }
  if (auto* request = std::get_if<SpawnRequest>(&*decoded)) request->process = id;
  if (std::holds_alternative<ActorEnded>(*decoded) ||
      std::holds_alternative<ActorFailed>(*decoded)) {
    cpus_.give_back(id);  // the driver will give them to others before the process has ended
  }
  driver_->send(*decoded);
}

/// Answers what a process asks in the name of an actor that has ended, or is none of its own.
void AgentLoop::refuse(AgentChild& child, const ControlMessage& message) {
  const Error why{ErrorCode::actor_died, "the actor that asks for it has ended"};
  if (const auto* request = std::get_if<KeyRequest>(&message)) {
    answer_key(child, request->request, why);
  } else if (const auto* request = std::get_if<SpawnRequest>(&message)) {
    SpawnReply reply;
    reply.request = request->request;
    reply.code = why.code;
    reply.message = why.message;
    child.send(reply);
  }
}

void AgentLoop::answer_region(ProcessId id, AgentChild& child, const RegionRequest& request) {
  RegionReply reply{request.request, true, ErrorCode::internal, ""};
  if (request.release) {
    regions_.release(request.name);
    return child.send(reply);
  }
  auto region = regions_.open(request.name, request.bytes, id);
  if (!region.ok()) {
    reply = {request.request, false, region.error().code, region.error().message};
    return child.send(reply);
  }
  child.send(reply, *std::move(region));
}

void AgentLoop::answer_key(AgentChild& child, std::uint64_t request, Result<Key> key) {
  KeyReply reply;
  reply.request = request;
  reply.ok = key.ok();
  if (key.ok()) {
    reply.key = SecretKey(*key);
    wipe(*key);
  } else {
    reply.code = key.error().code;
    reply.message = key.error().message;
  }
  child.send(reply);
}

std::string AgentLoop::out_of_memory() {
  const auto kills = oom_kills();
  return kills && oom_blame_.take(kills->count, Clock::now()) ? kills->source : "";
}

void AgentLoop::on_child_end(std::map<ProcessId, AgentChild>::iterator found) {
  auto& child = found->second;
  while (on_child_messages(found->first, child)) {  // its last messages
  }
  const auto status = child.process()->wait(milliseconds(0));
  if (!status) return child.note_unreaped();
  log::info("process {} (pid {}) {}", child.name(), child.pid(), status->describe());
  const bool is_killed = status->signalled && status->code == SIGKILL && !child.is_killed();
  std::string out_of = child.memory_overrun();
  if (is_killed) {  // groups above may count that kill, too
    const std::string counted = out_of_memory();
    if (out_of.empty()) out_of = counted;
  }
  driver_->send(ProcessEnded{.process = found->first,
                             .pid = child.pid(),
                             .signalled = status->signalled,
                             .unresponsive = child.is_unresponsive(),
                             .code = status->code,
                             .out_of_memory = std::move(out_of),
                             .memory_excess = child.memory_excess()});
  inquiries_.forget(found->first);
  outputs_.erase(found->first);
  followers_.remove(found->first);
  cpus_.give_back(found->first);
  regions_.remove(found->first);
  children_.erase(found);
}

}  // namespace troupe
