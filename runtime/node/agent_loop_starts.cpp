#include <algorithm>
#include <cstdlib>
#include <span>

#include <fmt/ranges.h>
#include <unistd.h>

#include "runtime/base/line_file.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/node/agent_loop.hpp"
#include "runtime/node/gpu_cpus.hpp"
#include "runtime/node/printed_lines.hpp"
#include "runtime/node/visible_devices.hpp"

namespace troupe {

Result<AgentChild*> AgentLoop::start_process(const StartActor& message) {
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
  if (bootstrap_.forward_logs) {
    TROUPE_CHECK(relay_output(message.process, child, message.process_name));
  }
  child.cpus = cpus_of(message);
  auto limit = memory_limit_of(message);
  if (limit) child.group_file = limit->members_file();
  starts_.push_back({message.process, std::move(child), std::move(ends.second)});
  auto channel = std::make_unique<ChildChannel>(std::move(ends.first));
  auto& added =
      children_
          .try_emplace(message.process, std::move(channel), message.process_name,
                       bootstrap.call_name, std::chrono::milliseconds(bootstrap_.kill_limit_ms))
          .first->second;
  added.begin_polling(child_events_.get(), message.process);
  if (message.memory_limit > 0) {
    added.limit_memory(static_cast<std::uint64_t>(message.memory_limit), std::move(limit));
  }
  added.send(bootstrap);
  if (is_suspended_) added.suspend();
  start_next();
  return &added;
}

std::vector<int> AgentLoop::cpus_of(const StartActor& message) {
  if (message.bound_cpus <= 0) return {};
  const auto gpus = visible_devices(message.devices, std::getenv("CUDA_VISIBLE_DEVICES"));
  const auto near = gpus.ok() ? cpus_near_gpus(*gpus) : std::vector<int>();
  auto cpus = cpus_.take(message.process, static_cast<std::size_t>(message.bound_cpus), near);
  log::info("process {} is bound to CPUs {}", message.process_name, fmt::join(cpus, ","));
  return cpus;
}

std::unique_ptr<MemoryLimit> AgentLoop::memory_limit_of(const StartActor& message) {
  if (message.memory_limit <= 0) return nullptr;
  if (!std::exchange(has_limited_memory_, true)) remove_left_memory_groups();
  auto limit = MemoryLimit::create(fmt::format("{}-{}", ::getpid(), message.process),
                                   static_cast<std::uint64_t>(message.memory_limit));
  if (limit.ok()) return *std::move(limit);
  log::warning(
      "the memory of process {} is looked at a few times a second alone, as it can have no "
      "control group: {}",
      message.process_name, limit.error().message);
  return nullptr;
}

void AgentLoop::start_next() {
  if (starts_.empty()) return;
  auto starting = static_cast<std::size_t>(
      std::ranges::count_if(children_, [](auto& entry) { return entry.second.is_starting(); }));
  const std::size_t most = std::max<std::size_t>(2, cpus_.size());
  for (; !starts_.empty() && starting < most; ++starting) {
    auto& [process, options, end] = starts_.front();
    const auto found = children_.find(process);
    if (found != children_.end()) found->second.begin_start();
    starter_.start(process, std::move(options), std::move(end));
    starts_.pop_front();
  }
}

void AgentLoop::on_process_started(ChildStarter::Started started) {
  if (!started.process.ok()) return fail_start(started.tag, started.process.error());
  if (const auto output = outputs_.find(started.tag); output != outputs_.end()) {
    output->second.relay->close_input();
    *output->second.pid = started.process->pid();
  }
  const auto found = children_.find(started.tag);
  if (found == children_.end()) return;
  AgentChild& child = found->second;
  child.set_process(*std::move(started.process));
  log::info("started process {} (pid {})", child.name(), child.pid());
}

void AgentLoop::fail_start(ProcessId process, const Error& why) {
  const auto found = children_.find(process);
  if (found == children_.end()) return;
  for (const auto& [actor, name] : found->second.actors()) {
    driver_->send(ActorFailed{actor, why.code, why.message});
  }
  outputs_.erase(process);
  cpus_.give_back(process);
  driver_->send(ProcessEnded{.process = process});
  children_.erase(found);
}

void AgentLoop::start_actor(StartActor message) {
  const auto found = children_.find(message.process);
  AgentChild* child = found == children_.end() ? nullptr : &found->second;
  if (child == nullptr && !message.starts_process) {
    driver_->send(ActorFailed{message.actor.id, ErrorCode::actor_died,
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

Result<void> AgentLoop::relay_output(ProcessId process, ChildOptions& child,
                                     const std::string& name) {
  std::shared_ptr<LineFile> file;
  if (!child.output_path.empty()) {
    TROUPE_TRY(auto opened, LineFile::open(child.output_path));
    file = std::make_shared<LineFile>(std::move(opened));
    child.output_path.clear();
  }
  auto pid = std::make_shared<std::atomic<int>>(0);
  TROUPE_TRY(auto relay, LogRelay::start([this, name, file, pid, printed = PrintedLines()](
                                             std::string_view lines) mutable {
               if (file) {
                 file->append(lines);
               } else {
                 (void)write_all(STDERR_FILENO, std::as_bytes(std::span(lines)), "");
               }
               auto taken = printed.take(lines, PrintedLines::Clock::now());
               if (!taken) return;
               taken->process = name;
               taken->pid = *pid;
               driver_->send(*std::move(taken));
             }));
  child.output_fd = relay->input();
  outputs_.insert_or_assign(process, Output{std::move(relay), std::move(pid)});
  return {};
}

void AgentLoop::ask_processes(const AskProcesses& ask) {
  const auto found = children_.find(ask.process);
  if (ask.what == Inquiry::stack) {
    if (found == children_.end() || found->second.process() == nullptr) {
      return driver_->send(NodeReport{
          .request = ask.request, .processes = {}, .problem = "its process does not run there"});
    }
    AgentChild& child = found->second;
    child.excuse(StackReader::limit);
    return stacks_.begin(
        ask.request,
        {.process = found->first, .pid = child.pid(), .name = child.name(), .bytes = {}});
  }
  std::map<ProcessId, std::string> asked;
  if (ask.what != Inquiry::clock) {
    for (auto& [id, child] : children_) {
      if (child.process() == nullptr || (ask.process != 0 && ask.process != id)) continue;
      asked.emplace(id, child.name());
    }
  }
  inquiries_.begin(ask, asked);
  for (const auto& [id, name] : asked) children_.at(id).send(ask);
}

}  // namespace troupe
