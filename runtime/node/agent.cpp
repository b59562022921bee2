#include "runtime/node/agent.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "runtime/base/available_memory.hpp"
#include "runtime/base/log.hpp"
#include "runtime/control/control_plane.hpp"
#include "runtime/control/followers.hpp"
#include "runtime/link/local_address.hpp"
#include "runtime/node/agent_child.hpp"
#include "runtime/node/agent_inbox.hpp"
#include "runtime/node/join_token.hpp"
#include "runtime/node/node_ticket.hpp"
#include "runtime/node/regions.hpp"
#include "runtime/node/visible_devices.hpp"
#include "runtime/process/child_channel.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/process/child_starter.hpp"
#include "runtime/security/handshake.hpp"
#include "runtime/security/plane_keys.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds stop_grace{1000};
/// For the ticket to come, and again to reach the driver.
constexpr milliseconds join_limit{10000};
/// For a driver that is reached to say what this agent is to do: it may be busy with hundreds.
constexpr milliseconds bootstrap_limit{30000};

/// Returns the actor that a process's message is about.
std::optional<ActorId> actor_of(const ControlMessage& message) {
  if (const auto* started = std::get_if<ActorStarted>(&message)) return started->actor;
  if (const auto* failed = std::get_if<ActorFailed>(&message)) return failed->actor;
  if (const auto* ended = std::get_if<ActorEnded>(&message)) return ended->actor;
  if (const auto* request = std::get_if<KeyRequest>(&message)) return request->actor;
  if (const auto* request = std::get_if<SpawnRequest>(&message)) return request->owner;
  if (const auto* request = std::get_if<StopOwned>(&message)) return request->owner;
  return std::nullopt;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

class Agent {
 public:
  /// `stop` becomes readable when the agent is to end: `why` says what has happened then.
  Agent(int stop, std::string why) : stop_(stop), why_stopped_(std::move(why)) {}
  int run(const NodeTicket& ticket, milliseconds patience);

 private:
  Result<void> join(const NodeTicket& ticket, milliseconds patience);
  bool is_stop_wanted() const;
  Result<AgentBootstrap> wait_for_bootstrap();
  /// Handles what the driver has sent, and looks after the children meanwhile: hundreds of messages
  /// may have come at once.
  void read_inbox();
  /// Waits for something to happen, if it may, and handles it.
  void poll_once(bool may_wait = true);
  void on_driver_message(ControlMessage message);
  /// Forwards the child's messages; false if there were none.
  bool on_child_messages(ProcessId id, AgentChild& child);
  void on_child_message(ProcessId id, AgentChild& child, ChildChannel::Message message);
  void on_child_end(std::map<ProcessId, AgentChild>::iterator found);
  void start_actor(StartActor message);
  Result<AgentChild*> start_process(const StartActor& message);
  void on_process_started(ChildStarter::Started started);
  void suspend();
  void resume();
  void kill_all();
  void answer_region(AgentChild& child, const RegionRequest& request);
  void answer_key(AgentChild& child, std::uint64_t request, Result<Key> key);
  void tick();

  const int stop_;
  const std::string why_stopped_;
  AgentBootstrap bootstrap_;  ///< without the secret
  std::optional<JobKeys> keys_;
  Inbox inbox_;
  std::unique_ptr<ControlClient> driver_;
  ChildStarter starter_;  ///< outlives its children
  std::map<ProcessId, AgentChild> children_;
  Followers<ProcessId> followers_;
  Regions regions_;
  Clock::time_point next_tick_ = Clock::now();
  std::string why_refused_;
  bool is_stopped_ = false;
  bool is_shutting_down_ = false;
  bool is_suspended_ = false;
};

Result<void> Agent::join(const NodeTicket& ticket, milliseconds patience) {
  AgentReady hello;
  hello.build = this_build();
  hello.node = ticket.node;
  hello.pid = ::getpid();
  hello.host = host_name();
  hello.cpus = static_cast<std::int32_t>(std::thread::hardware_concurrency());
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

bool Agent::is_stop_wanted() const {
  pollfd stop{stop_, POLLIN, 0};
  return ::poll(&stop, 1, 0) > 0;
}

Result<AgentBootstrap> Agent::wait_for_bootstrap() {
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
  return fail(ErrorCode::timeout, "the driver has not said within {} ms what to do",
              bootstrap_limit.count());
}

int Agent::run(const NodeTicket& ticket, milliseconds patience) {
  if (auto joined = join(ticket, patience); !joined.ok()) {
    log::error("the agent of node {} cannot join its job: {}", ticket.node, joined.error().message);
    return 1;
  }
  log::info("agent of node {} is ready", bootstrap_.processes.node);
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
      log::warning("ending {} processes: {}", children_.size(),
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
  log::info("agent of node {} ends as told", bootstrap_.processes.node);
  return 0;
}

void Agent::read_inbox() {
  while (auto message = inbox_.take()) {
    const auto* start = std::get_if<StartActor>(&*message);
    const bool starts_process = start != nullptr && start->starts_process;
    on_driver_message(*std::move(message));
    if (starts_process) poll_once(false);
    if (is_stopped_) return;
  }
}

void Agent::poll_once(bool may_wait) {
  std::vector<pollfd> polled{
      {stop_, POLLIN, 0}, {inbox_.fd(), POLLIN, 0}, {starter_.fd(), POLLIN, 0}};
  const std::size_t first = polled.size();
  std::vector<ProcessId> ids;
  for (auto& [id, child] : children_) {
    ids.push_back(id);
    polled.push_back({child.pidfd(), POLLIN, 0});
    polled.push_back({child.channel_fd(), child.channel_events(), 0});
  }
  const auto left = std::chrono::ceil<milliseconds>(next_tick_ - Clock::now()).count();
  const auto wait = may_wait ? std::max<std::int64_t>(0, left) : 0;
  ::poll(polled.data(), polled.size(), static_cast<int>(wait));
  if (polled[0].revents != 0) is_stopped_ = true;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto found = children_.find(ids[i]);
    if (polled[first + 2 * i + 1].revents != 0) on_child_messages(ids[i], found->second);
    if (polled[first + 2 * i].revents != 0) on_child_end(found);
  }
  if (polled[2].revents != 0) {
    for (auto& started : starter_.take()) on_process_started(std::move(started));
  }
  if (Clock::now() >= next_tick_) tick();
}

void Agent::tick() {
  next_tick_ = Clock::now() + heartbeat_interval;
  if (is_suspended_) return;
  for (auto& [id, child] : children_) child.tend();
}

void Agent::on_driver_message(ControlMessage message) {
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
  } else if (const auto* shutdown = std::get_if<Shutdown>(&message)) {
    is_shutting_down_ = true;
    for (auto& [id, child] : children_) child.stop(milliseconds(shutdown->timeout_ms));
  } else if (const auto* refused = std::get_if<AgentRefused>(&message)) {
    why_refused_ = refused->why;
  } else if (std::holds_alternative<Suspend>(message)) {
    suspend();
  } else if (std::holds_alternative<Resume>(message)) {
    resume();
  }
}

void Agent::kill_all() {
  starter_.stop();
  for (auto& started : starter_.take()) on_process_started(std::move(started));
  std::vector<ChildProcess*> processes;
  for (auto& [id, child] : children_) {
    if (child.process() != nullptr) processes.push_back(child.process());
  }
  kill_and_reap(processes, milliseconds(5000));
}

/// Stops the processes together with the driver, so that their waits for each other and for the
/// driver do not run out.
void Agent::suspend() {
  is_suspended_ = true;
  for (auto& [id, child] : children_) child.suspend();
  driver_->send(Suspended{});
}

void Agent::resume() {
  is_suspended_ = false;
  for (auto& [id, child] : children_) child.resume();
}

Result<AgentChild*> Agent::start_process(const StartActor& message) {
  TROUPE_TRY(auto ends, ChildChannel::make_pair());
  ProcessBootstrap bootstrap = bootstrap_.processes;
  TROUPE_TRY(bootstrap.call_name, draw_call_name(bootstrap_.job_id));
  bootstrap.call_key = SecretKey(call_listener_key(*keys_, bootstrap.call_name));
  bootstrap.process = message.process;
  bootstrap.process_name = message.process_name;
  if (!bootstrap_.log_folder.empty()) {
    bootstrap.log_path = fmt::format("{}/{}.log", bootstrap_.log_folder, message.process_name);
  }
  ChildOptions child;
  child.arguments = {fmt::format("troupe: {} on {}", message.process_name, bootstrap.node),
                     "--troupe-process=actor"};
  if (!bootstrap_.log_folder.empty()) child.output_path = bootstrap.log_path;
  if (message.hides_other_devices) {
    TROUPE_TRY(const std::string visible,
               visible_devices(message.devices, std::getenv("CUDA_VISIBLE_DEVICES")));
    child.environment.push_back("CUDA_VISIBLE_DEVICES=" + visible);
  }
  TROUPE_CHECK(starter_.start(message.process, std::move(child), std::move(ends.second)));
  auto channel = std::make_unique<ChildChannel>(std::move(ends.first));
  auto& added = children_
                    .try_emplace(message.process, std::move(channel), message.process_name,
                                 bootstrap.call_name)
                    .first->second;
  added.send(bootstrap);
  if (is_suspended_) added.suspend();
  return &added;
}

void Agent::on_process_started(ChildStarter::Started started) {
  const auto found = children_.find(started.tag);
  if (found == children_.end()) return;
  AgentChild& child = found->second;
  if (started.process.ok()) {
    child.set_process(*std::move(started.process));
    return log::info("started process {} (pid {})", child.name(), child.pid());
  }
  const Error& why = started.process.error();
  for (const auto& [actor, name] : child.actors()) {
    driver_->send(ActorFailed{actor, why.code, why.message});
  }
  driver_->send(ProcessEnded{.process = started.tag});
  children_.erase(found);
}

void Agent::start_actor(StartActor message) {
  const auto found = children_.find(message.process);
  AgentChild* child = found == children_.end() ? nullptr : &found->second;
  if (child == nullptr && !message.starts_process) {
    driver_->send(ActorFailed{message.actor.id, ErrorCode::peer_died,
                              "its process had ended before it could be started there"});
    return;
  }
  if (child == nullptr) {
    auto started = start_process(message);
    if (!started.ok()) {
      driver_->send(ActorFailed{message.actor.id, started.error().code, started.error().message});
      driver_->send(ProcessEnded{.process = message.process});
      return;
    }
    child = *started;
  }
  child->add_actor(message.actor.id, message.actor.name);
  child->send(std::move(message));
}

bool Agent::on_child_messages(ProcessId id, AgentChild& child) {
  auto messages = child.exchange();
  for (auto& message : messages) on_child_message(id, child, std::move(message));
  return !messages.empty();
}

void Agent::on_child_message(ProcessId id, AgentChild& child, ChildChannel::Message message) {
  auto decoded = decode_message(message.bytes, ControlEdge::process_to_agent);
  if (!decoded.ok()) return log::error("process {}: {}", child.name(), decoded.error().message);
  if (const auto actor = actor_of(*decoded); actor && child.find_actor(*actor) == nullptr) {
    return log::error("process {} speaks for actor {}, which is not one of its own", child.name(),
                      *actor);
  }
  if (const auto* followed = std::get_if<FollowActor>(&*decoded)) {
    const bool is_first = followers_.add(followed->actor, id);
    if (!is_first && !followed->wants_address) return;  // the driver knows
  }
  if (const auto* request = std::get_if<RegionRequest>(&*decoded))
    return answer_region(child, *request);
  if (const auto* request = std::get_if<KeyRequest>(&*decoded)) {
    const std::string& asker = *child.find_actor(request->actor);
    return answer_key(child, request->request, channel_key(*keys_, asker, request->scope));
  }
  if (const auto* request = std::get_if<CallKeyRequest>(&*decoded)) {
    const Key listener = call_listener_key(*keys_, request->listener);
    return answer_key(child, request->request, call_pair_key(listener, child.call_name()));
  }
  if (std::holds_alternative<Heartbeat>(*decoded)) return;
  if (auto* request = std::get_if<SpawnRequest>(&*decoded)) request->process = id;
  driver_->send(*decoded);
}

void Agent::answer_region(AgentChild& child, const RegionRequest& request) {
  RegionReply reply{request.request, true, ErrorCode::internal, ""};
  if (request.release) {
    regions_.release(request.name);
    return child.send(reply);
  }
  auto region = regions_.open(request.name, request.bytes);
  if (!region.ok()) {
    reply = {request.request, false, region.error().code, region.error().message};
    return child.send(reply);
  }
  child.send(reply, *std::move(region));
}

void Agent::answer_key(AgentChild& child, std::uint64_t request, Result<Key> key) {
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

void Agent::on_child_end(std::map<ProcessId, AgentChild>::iterator found) {
  auto& child = found->second;
  while (on_child_messages(found->first, child)) {  // its last messages
  }
  const auto status = child.process()->wait(milliseconds(0));
  if (!status) return;
  log::info("process {} (pid {}) {}", child.name(), child.pid(), status->describe());
  driver_->send(ProcessEnded{found->first, child.pid(), status->signalled, child.is_unresponsive(),
                             status->code});
  followers_.remove(found->first);
  children_.erase(found);
}

}  // namespace

int run_agent() {
  forbid_dumps();
  // Children get neither the stream nor the signals that are meant for the driver.
  const UniqueFd parent(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(null.get(), STDIN_FILENO);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE}) ::signal(number, SIG_IGN);
  auto ticket = read_ticket(parent.get(), join_limit);
  if (!ticket.ok()) return log::error("agent: {}", ticket.error().message), 1;
  return Agent(parent.get(), "the starter of this node has ended").run(*ticket, join_limit);
}

int run_joining_agent(const JoinTarget& target) {
  forbid_dumps();
  sigset_t ends;
  ::sigemptyset(&ends);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&ends, number);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before any thread
  ::signal(SIGPIPE, SIG_IGN);
  const UniqueFd signals(::signalfd(-1, &ends, SFD_CLOEXEC));
  auto token = read_join_token(target.token_file);
  if (!token.ok()) return log::error("agent: {}", token.error().message), 1;
  NodeTicket ticket;
  std::array<std::byte, 4> unique{};
  if (auto drawn = random_bytes(unique); !drawn.ok()) {
    return log::error("agent: {}", drawn.error().message), 1;
  }
  ticket.node = fmt::format("{}/{}", host_name(), to_hex(unique));
  ticket.host = target.host;
  ticket.port = target.port;
  ticket.key = SecretKey(join_key(token->bytes, ticket.node));
  return Agent(signals.get(), "it was asked to by a signal").run(ticket, target.patience);
}

}  // namespace troupe
