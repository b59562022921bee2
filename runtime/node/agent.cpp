#include "runtime/node/agent.hpp"

#include <chrono>
#include <csignal>
#include <map>
#include <mutex>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/log.hpp"
#include "runtime/control/control_plane.hpp"
#include "runtime/node/regions.hpp"
#include "runtime/process/child_channel.hpp"
#include "runtime/process/child_process.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// A stopped process is to be known to the driver within 2 s; about 0.4 s of that are left for the
/// way there on a busy machine.
constexpr milliseconds heartbeat_interval{200};
constexpr milliseconds silence_limit{1200};
/// Until the first sign of life of a process that runs: the program may come from a slow disk.
constexpr milliseconds start_limit{10000};
constexpr milliseconds stop_grace{1000};
constexpr std::size_t max_queued_to_child = std::size_t{512} << 20;

/// Messages from CAF's thread to the agent's, with an eventfd to poll.
class Inbox {
 public:
  Inbox() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  int fd() const { return wake_.get(); }
  void push(ControlMessage message) {
    std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
    ::eventfd_write(wake_.get(), 1);
  }
  void lose_driver() {
    std::lock_guard lock(mutex_);
    driver_lost_ = true;
    ::eventfd_write(wake_.get(), 1);
  }
  bool driver_lost() const {
    std::lock_guard lock(mutex_);
    return driver_lost_;
  }
  std::vector<ControlMessage> take() {
    eventfd_t ignored = 0;
    ::eventfd_read(wake_.get(), &ignored);
    std::lock_guard lock(mutex_);
    return std::exchange(messages_, {});
  }

 private:
  UniqueFd wake_;
  mutable std::mutex mutex_;
  std::vector<ControlMessage> messages_;
  bool driver_lost_ = false;
};

struct Child {
  ChildProcess process;
  std::unique_ptr<ChildChannel> channel;
  std::string name;
  Clock::time_point last_heard;
  std::optional<Clock::time_point> kill_at;
  bool heard = false;
  bool unresponsive = false;
  bool channel_over = false;
};

class Agent {
 public:
  Agent(AgentBootstrap bootstrap, int parent) : bootstrap_(std::move(bootstrap)), parent_(parent) {}
  int run();

 private:
  void poll_once();
  void on_driver_message(ControlMessage message);
  /// Hands on what the child has sent; false if there was nothing.
  bool on_child_messages(Child& child);
  void on_child_message(Child& child, ChildChannel::Message message);
  void on_child_end(std::map<ProcessId, Child>::iterator found);
  void start_actor(StartActor message);
  Result<Child*> start_process(const StartActor& message);
  void stop_process(Child& child, Clock::time_point kill_at);
  void kill_all();
  void answer_region(Child& child, const RegionRequest& request);
  void send_to(Child& child, const ControlMessage& message, UniqueFd attached = {});
  void tick();

  const AgentBootstrap bootstrap_;
  const int parent_;
  Inbox inbox_;
  std::unique_ptr<ControlClient> driver_;
  std::map<ProcessId, Child> children_;
  Regions regions_;
  Clock::time_point next_tick_ = Clock::now();
  bool parent_gone_ = false;
  std::optional<Clock::time_point> shutdown_at_;
};

int Agent::run() {
  auto keys = JobKeys::from_secret(bootstrap_.processes.secret);
  if (!keys.ok()) return log::error("{}", keys.error().message), 1;
  auto driver =
      ControlClient::connect(*keys, bootstrap_.control_host, bootstrap_.control_port,
                             {bootstrap_.processes.node, bootstrap_.token, ::getpid()},
                             {[this](ControlMessage message) { inbox_.push(std::move(message)); },
                              [this] { inbox_.lose_driver(); }},
                             milliseconds(10000));
  if (!driver.ok()) return log::error("{}", driver.error().message), 1;
  driver_ = *std::move(driver);
  log::info("agent of node {} is ready", bootstrap_.processes.node);
  while (true) {
    poll_once();
    for (auto& message : inbox_.take()) on_driver_message(std::move(message));
    if (parent_gone_ || inbox_.driver_lost()) {
      log::warning("the driver is gone; ending {} processes", children_.size());
      kill_all();
      ::_exit(1);
    }
    if (shutdown_at_ && children_.empty()) break;
  }
  log::info("agent of node {} ends as told", bootstrap_.processes.node);
  return 0;
}

void Agent::poll_once() {
  std::vector<pollfd> polled{{parent_, POLLIN, 0}, {inbox_.fd(), POLLIN, 0}};
  std::vector<ProcessId> ids;
  for (auto& [id, child] : children_) {
    ids.push_back(id);
    polled.push_back({child.process.pidfd(), POLLIN, 0});
    const short events = child.channel->wants_to_write() ? POLLIN | POLLOUT : POLLIN;
    polled.push_back({child.channel_over ? -1 : child.channel->fd(), events, 0});
  }
  const auto left = std::chrono::ceil<milliseconds>(next_tick_ - Clock::now()).count();
  ::poll(polled.data(), polled.size(), static_cast<int>(std::max<std::int64_t>(0, left)));
  if (polled[0].revents != 0) parent_gone_ = true;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto found = children_.find(ids[i]);
    if (polled[3 + 2 * i].revents != 0) on_child_messages(found->second);
    if (polled[2 + 2 * i].revents != 0) on_child_end(found);
  }
  if (Clock::now() >= next_tick_) tick();
}

/// Pings every child, and kills those that were silent too long or outlived their notice.
void Agent::tick() {
  const auto now = Clock::now();
  // If this process itself was stopped or starved, the children had no pings to answer.
  const bool late = now - next_tick_ > heartbeat_interval;
  next_tick_ = now + heartbeat_interval;
  for (auto& [id, child] : children_) {
    if (late) child.last_heard = now;
    const auto silent = now - child.last_heard;
    if (!child.unresponsive && silent > silence_limit &&
        (child.heard || silent > start_limit || child.process.is_stopped())) {
      log::error("process {} (pid {}) does not answer; killing it", child.name,
                 child.process.pid());
      child.unresponsive = true;
      child.process.signal(SIGKILL);
    } else if (child.kill_at && now >= *child.kill_at) {
      child.process.signal(SIGKILL);
    } else if (child.channel->queued_bytes() > max_queued_to_child) {
      log::error("process {} (pid {}) does not read what it is sent; killing it", child.name,
                 child.process.pid());
      child.unresponsive = true;
      child.process.signal(SIGKILL);
    } else {
      send_to(child, Heartbeat{});
    }
  }
}

void Agent::send_to(Child& child, const ControlMessage& message, UniqueFd attached) {
  // A failure means that the child is ending; its pidfd tells.
  (void)child.channel->send(encode_message(message), std::move(attached));
}

void Agent::on_driver_message(ControlMessage message) {
  const auto child_of = [this](ProcessId id) -> Child* {
    const auto found = children_.find(id);
    return found == children_.end() ? nullptr : &found->second;
  };
  if (auto* start = std::get_if<StartActor>(&message)) {
    start_actor(std::move(*start));
  } else if (const auto* stop = std::get_if<StopActor>(&message)) {
    if (Child* child = child_of(stop->process)) send_to(*child, *stop);
  } else if (const auto* end = std::get_if<StopProcess>(&message)) {
    Child* child = child_of(end->process);
    if (child != nullptr && end->kill) child->process.signal(SIGKILL);
    if (child != nullptr && !end->kill) stop_process(*child, Clock::now() + stop_grace);
  } else if (std::holds_alternative<ActorGone>(message)) {
    for (auto& [id, child] : children_) send_to(child, message);
  } else if (const auto* shutdown = std::get_if<Shutdown>(&message)) {
    shutdown_at_ = Clock::now() + milliseconds(shutdown->timeout_ms);
    for (auto& [id, child] : children_) stop_process(child, *shutdown_at_);
  }
}

void Agent::stop_process(Child& child, Clock::time_point kill_at) {
  child.kill_at = kill_at;
  send_to(child, StopProcess{});
}

void Agent::kill_all() {
  std::vector<ChildProcess*> processes;
  for (auto& [id, child] : children_) processes.push_back(&child.process);
  kill_and_reap(processes, milliseconds(5000));
}

Result<Child*> Agent::start_process(const StartActor& message) {
  TROUPE_TRY(auto ends, ChildChannel::make_pair());
  ProcessBootstrap bootstrap = bootstrap_.processes;
  bootstrap.process = message.process;
  bootstrap.process_name = message.process_name;
  if (!bootstrap_.log_folder.empty()) {
    bootstrap.log_path = fmt::format("{}/{}.log", bootstrap_.log_folder, message.process_name);
  }
  TROUPE_TRY(
      auto process,
      ChildProcess::start({{fmt::format("troupe: {} on {}", message.process_name, bootstrap.node),
                            "--troupe-process=actor"},
                           bootstrap.log_path,
                           ends.second.get()}));
  auto channel = std::make_unique<ChildChannel>(std::move(ends.first));
  Child child{.process = std::move(process),
              .channel = std::move(channel),
              .name = message.process_name,
              .last_heard = Clock::now(),
              .kill_at = {}};
  auto& started = children_.emplace(message.process, std::move(child)).first->second;
  send_to(started, bootstrap);
  log::info("started process {} (pid {})", started.name, started.process.pid());
  return &started;
}

void Agent::start_actor(StartActor message) {
  const auto found = children_.find(message.process);
  Child* child = found == children_.end() ? nullptr : &found->second;
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
  send_to(*child, std::move(message));
}

bool Agent::on_child_messages(Child& child) {
  if (!child.channel->flush().ok()) child.channel_over = true;
  auto messages = child.channel->receive();
  if (!messages.ok()) {
    child.channel_over = true;  // it is ending; its pidfd tells how
    return false;
  }
  child.last_heard = Clock::now();
  child.heard = true;
  for (auto& message : *messages) on_child_message(child, std::move(message));
  return !messages->empty();
}

void Agent::on_child_message(Child& child, ChildChannel::Message message) {
  auto decoded = decode_message(message.bytes);
  if (!decoded.ok()) return log::error("process {}: {}", child.name, decoded.error().message);
  if (const auto* request = std::get_if<RegionRequest>(&*decoded))
    return answer_region(child, *request);
  if (std::holds_alternative<Heartbeat>(*decoded)) return;
  driver_->send(*decoded);
}

void Agent::answer_region(Child& child, const RegionRequest& request) {
  RegionReply reply{request.request, true, ErrorCode::internal, ""};
  if (request.release) {
    regions_.release(request.name);
    return send_to(child, reply);
  }
  auto region = regions_.open(request.name, request.bytes);
  if (!region.ok()) {
    reply = {request.request, false, region.error().code, region.error().message};
    return send_to(child, reply);
  }
  send_to(child, reply, *std::move(region));
}

void Agent::on_child_end(std::map<ProcessId, Child>::iterator found) {
  auto& child = found->second;
  while (!child.channel_over && on_child_messages(child)) {  // what it said last
  }
  const auto status = child.process.wait(milliseconds(0));
  if (!status) return;
  log::info("process {} (pid {}) {}", child.name, child.process.pid(), status->describe());
  driver_->send(ProcessEnded{found->first, child.process.pid(), status->signalled,
                             child.unresponsive, status->code});
  children_.erase(found);
}

}  // namespace

int run_agent(UniqueFd parent) {
  ChildChannel channel(std::move(parent));
  auto message = channel.receive_one(10000);
  if (!message.ok()) return log::error("agent: {}", message.error().message), 1;
  auto bootstrap = decode<AgentBootstrap>(message->bytes);
  if (!bootstrap.ok()) return log::error("agent: {}", bootstrap.error().message), 1;
  const auto& process = bootstrap->processes;
  if (auto opened = log::open(process.process_name, process.log_path,
                              static_cast<log::Level>(process.log_level));
      !opened.ok()) {
    return log::error("agent: {}", opened.error().message), 1;
  }
  return Agent(*std::move(bootstrap), channel.fd()).run();
}

}  // namespace troupe
