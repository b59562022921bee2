#include "runtime/node/agent_child.hpp"

#include <csignal>

#include <sys/epoll.h>

#include "runtime/base/log.hpp"
#include "runtime/control/control_plane.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {
namespace {

/// Limit until the first message of a new process: the program may come from a slow disk.
constexpr std::chrono::milliseconds start_limit{10000};
constexpr std::chrono::milliseconds usual_start{200};
constexpr std::size_t max_queued_bytes = std::size_t{512} << 20;

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

}  // namespace

AgentChild::AgentChild(std::unique_ptr<ChildChannel> channel, std::string name,
                       std::string call_name, std::chrono::milliseconds kill_limit)
    : channel_(std::move(channel)),
      name_(std::move(name)),
      call_name_(std::move(call_name)),
      start_(start_limit),
      silence_(silence_limit),
      kill_limit_(kill_limit) {}

void AgentChild::begin_start() { usual_start_ = deadline_in(usual_start); }

void AgentChild::set_process(ChildProcess process) {
  process_.emplace(std::move(process));
  polled_end_ = PolledFd(epoll_, process_->pidfd(), tag_of({id_, true}));
  polled_end_.wait_for(EPOLLIN);
  start_.renew();
  silence_.renew();
  if (is_suspended_) process_->signal(SIGSTOP);
  if (is_killed_) process_->signal(SIGKILL);
}

void AgentChild::kill() {
  if (!std::exchange(is_killed_, true)) end_limit_ = deadline_in(kill_limit_);
  if (process_) process_->signal(SIGKILL);
}

void AgentChild::suspend() {
  is_suspended_ = true;
  if (process_) process_->signal(SIGSTOP);
}

void AgentChild::begin_polling(int epoll, ProcessId process) {
  epoll_ = epoll;
  id_ = process;
  polled_channel_ = PolledFd(epoll, channel_->fd(), tag_of({process, false}));
  poll_channel();
}

void AgentChild::poll_channel() {
  if (is_channel_over_) return polled_channel_.wait_for(0);
  polled_channel_.wait_for(channel_->wants_to_write() ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void AgentChild::send(const ControlMessage& message, UniqueFd attached) {
  // An error means that the process is ending; its pidfd reports that.
  Bytes bytes = encode_message(message);
  (void)channel_->send(bytes, std::move(attached));
  wipe(bytes);  // it may hold a key
  poll_channel();
}

std::vector<ChildChannel::Message> AgentChild::exchange() {
  if (is_channel_over_) return {};
  if (!channel_->flush().ok()) is_channel_over_ = true;
  auto messages = channel_->receive();
  if (!messages.ok()) is_channel_over_ = true;  // it is ending; its pidfd reports how
  poll_channel();
  if (!messages.ok()) return {};
  silence_.renew();
  was_heard_ = true;
  return *std::move(messages);
}

bool AgentChild::survives_kill() {
  if (!process_ || !end_limit_ || !end_limit_->is_over()) return false;
  end_limit_.reset();
  return true;
}

void AgentChild::limit_memory(std::uint64_t bytes, std::unique_ptr<MemoryLimit> group) {
  memory_limit_ = bytes;
  memory_group_ = std::move(group);
}

std::string AgentChild::memory_overrun() const {
  const auto file = memory_group_ ? memory_group_->overrun() : std::nullopt;
  return file ? fmt::format("{}, its limit of {} bytes", *file, memory_limit_) : "";
}

void AgentChild::look_at_memory() {
  if (memory_limit_ == 0 || memory_group_ || is_killed_) return;
  const auto used = own_memory_of(pid());
  if (!used || *used <= memory_limit_) return;
  memory_excess_ = fmt::format("{} bytes, and its limit is {}", *used, memory_limit_);
  log::error("process {} (pid {}) uses {} bytes, and its limit is {}; killing it", name_, pid(),
             *used, memory_limit_);
  kill();
}

void AgentChild::tend() {
  if (!process_) return;
  polled_end_.wait_for(EPOLLIN);
  if (excused_ && !excused_->is_over()) silence_.renew();
  look_at_memory();
  const bool is_silent = silence_.has_expired() && (was_heard_ || process_->is_stopped());
  const bool does_not_start = start_.has_expired() && !was_heard_;
  if (!is_unresponsive_ && (is_silent || does_not_start)) {
    kill_since("does not answer");
  } else if (kill_at_ && kill_at_->is_over()) {
    kill();
  } else if (channel_->queued_bytes() > max_queued_bytes) {
    kill_since("does not read what it is sent");
  } else {
    send(Heartbeat{});
  }
}

AgentChild::Clock::duration AgentChild::silence_left() {
  const bool is_watched = process_ && was_heard_ && !is_killed_;
  return is_watched ? silence_.left() : silence_limit;
}

void AgentChild::kill_since(std::string_view why) {
  log::error("process {} (pid {}) {}; killing it", name_, pid(), why);
  is_unresponsive_ = true;
  kill();
}

void AgentChild::stop(std::chrono::milliseconds grace) {
  kill_at_ = deadline_in(grace);
  send(StopProcess{});
}

void AgentChild::resume() {
  is_suspended_ = false;
  start_.renew();
  silence_.renew();
  if (process_) process_->signal(SIGCONT);
}

bool AgentChild::note_message(const ControlMessage& message) {
  const auto actor = actor_of(message);
  if (!actor) return true;
  const auto found = actors_.find(*actor);
  if (found == actors_.end()) {
    log::error("process {} speaks for actor {}, which is not one of its own", name_, *actor);
    return false;
  }
  // The driver tells of its next incarnation, if there is one, after this message.
  const bool is_end =
      std::holds_alternative<ActorEnded>(message) || std::holds_alternative<ActorFailed>(message);
  if (is_end) actors_.erase(found);
  return true;
}

const std::string* AgentChild::find_actor(ActorId id) const {
  const auto found = actors_.find(id);
  return found == actors_.end() ? nullptr : &found->second;
}

}  // namespace troupe
