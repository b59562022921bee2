#include "runtime/actor/in_process_nodes.hpp"

#include <csignal>
#include <system_error>

#include <unistd.h>

namespace troupe {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

InProcessNodes::InProcessNodes(std::vector<std::string> nodes,
                               std::shared_ptr<const HostServices> services, OnMessage on_message)
    : nodes_(std::move(nodes)), services_(std::move(services)), on_message_(std::move(on_message)) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    regions_.push_back(std::make_shared<SharedRegions>());
  }
}

InProcessNodes::~InProcessNodes() { stop(milliseconds(1000)); }

Result<void> InProcessNodes::start() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::resource_exhausted, "cannot start a thread: {}", error.what());
  }
  return {};
}

void InProcessNodes::receive(std::size_t node, const ControlMessage& message) {
  push({.node = node, .message = message});
}

void InProcessNodes::push(Order order) {
  const std::lock_guard lock(inbox_->mutex);
  inbox_->orders.push_back(std::move(order));
  inbox_->changed.notify_all();
}

void InProcessNodes::run() {
  std::unique_lock lock(inbox_->mutex);
  while (true) {
    inbox_->changed.wait(lock, [this] { return inbox_->is_stopping || !inbox_->orders.empty(); });
    if (inbox_->is_stopping) return;
    Order order = std::move(inbox_->orders.front());
    inbox_->orders.pop_front();
    lock.unlock();
    handle(order);
    order = {};
    lock.lock();
  }
}

void InProcessNodes::handle(Order& order) {
  if (const auto* start = std::get_if<StartActor>(&order.message)) {
    return start_actor(order.node, *start);
  }
  if (const auto* stop = std::get_if<StopActor>(&order.message)) {
    const auto process = processes_.find(stop->process);
    if (process == processes_.end()) return;
    const auto cell = process->second.cells.find(stop->actor);
    if (cell != process->second.cells.end()) cell->second->stop();
    return;
  }
  if (const auto* stop = std::get_if<StopProcess>(&order.message)) {
    return end_process(stop->process, stop->kill);
  }
  if (const auto* ask = std::get_if<AskProcesses>(&order.message)) {
    return on_message_(order.node, NodeReport{.request = ask->request});  // the driver's is all
  }
  if (!order.is_event) return;  // what is told to processes is told to the one that there is
  const auto process = processes_.find(order.process);
  if (process == processes_.end()) return;  // killed: nobody hears of it any more
  const bool is_last = order.ends_cell && [&] {
    const auto* ended = std::get_if<ActorEnded>(&order.message);
    const auto* failed = std::get_if<ActorFailed>(&order.message);
    process->second.cells.erase(ended != nullptr ? ended->actor : failed->actor);
    return process->second.cells.empty();
  }();
  const bool ends = is_last && process->second.is_ending;
  on_message_(order.node, std::move(order.message));
  if (ends) note_ended(order.process, order.node, false);
}

std::shared_ptr<const HostServices> InProcessNodes::services_of(std::size_t node,
                                                                ProcessId process) const {
  auto services = std::make_shared<HostServices>(*services_);
  services->node = nodes_[node];
  services->shared_memory = [regions = regions_[node], process](std::string_view name,
                                                                std::size_t bytes) {
    return regions->open(name, bytes, process);
  };
  services->release_shared_memory = [regions =
                                         regions_[node]](std::string_view prefix) -> Result<void> {
    regions->release(prefix);
    return {};
  };
  return services;
}

InProcessNodes::Tell InProcessNodes::teller(std::size_t node, ProcessId process) const {
  return [inbox = inbox_, node, process](ControlMessage message, bool ends_cell) {
    const std::lock_guard lock(inbox->mutex);
    inbox->orders.push_back({node, std::move(message), true, process, ends_cell});
    inbox->changed.notify_all();
  };
}

void InProcessNodes::start_actor(std::size_t node, const StartActor& start) {
  const auto refuse = [&](const Error& why) {
    on_message_(node, ActorFailed{start.actor.id, why.code, why.message});
    if (start.starts_process) on_message_(node, ProcessEnded{.process = start.process});
  };
  auto factory = ActorTypes::registered().find(start.actor.type);
  if (!factory.ok()) return refuse(factory.error());
  const auto found = processes_.find(start.process);
  if (found == processes_.end() && !start.starts_process) {
    return refuse(fail(ErrorCode::peer_died, "its process had ended before it could be started"));
  }
  Process& process = processes_[start.process];
  process.node = node;
  const Tell tell = teller(node, start.process);
  if (!process.services) {
    process.services = services_of(node, start.process);
    process.events = std::make_shared<const ActorCell::Events>(ActorCell::Events{
        .on_ended = [tell](const ActorAddress& ended, bool exited, const std::string& reason) {
          tell(ActorEnded{ended.id, exited, reason}, true);
        }});
  }
  ActorAddress address = start.actor;
  address.endpoint = services_->hub->endpoint();
  auto make = [make = *std::move(factory), arguments = start.arguments](ActorContext& context) {
    return make(context, arguments);
  };
  auto on_made = [tell, id = address.id, endpoint = address.endpoint](const Result<void>& made) {
    if (made.ok()) return tell(ActorStarted{id, endpoint, ::getpid()}, false);
    tell(ActorFailed{id, made.error().code, made.error().message}, true);
  };
  auto cell = ActorCell::start({.address = std::make_shared<const ActorAddress>(std::move(address)),
                                .devices = start.devices,
                                .dedicated_thread = start.dedicated_thread,
                                .max_concurrency = start.max_concurrency,
                                .factory = std::move(make),
                                .on_made = std::move(on_made),
                                .events = process.events},
                               process.services);
  if (cell.ok()) {
    process.cells[start.actor.id] = *std::move(cell);
    return;
  }
  if (process.cells.empty()) processes_.erase(start.process);
  refuse(cell.error());
}

void InProcessNodes::end_process(ProcessId id, bool kill) {
  const auto found = processes_.find(id);
  if (found == processes_.end()) return;
  found->second.is_ending = true;
  for (auto& [actor, cell] : found->second.cells) kill ? cell->kill() : cell->stop();
  if (kill || found->second.cells.empty()) note_ended(id, found->second.node, kill);
}

void InProcessNodes::note_ended(ProcessId id, std::size_t node, bool killed) {
  processes_.erase(id);
  regions_[node]->remove(id);
  on_message_(
      node,
      ProcessEnded{
          .process = id, .pid = ::getpid(), .signalled = killed, .code = killed ? SIGKILL : 0});
}

void InProcessNodes::stop(milliseconds timeout) {
  {
    const std::lock_guard lock(inbox_->mutex);
    if (std::exchange(inbox_->is_stopping, true)) return;
    inbox_->changed.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  for (auto& [id, process] : processes_) {
    for (auto& [actor, cell] : process.cells) cell->stop();
  }
  const auto until = Clock::now() + timeout;
  for (auto& [id, process] : processes_) {
    for (auto& [actor, cell] : process.cells) {
      const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
      if (!cell->wait_until_over(std::max(left, milliseconds(0)))) cell->kill();
    }
  }
  processes_.clear();
  const std::lock_guard lock(inbox_->mutex);
  inbox_->orders.clear();
}

}  // namespace troupe
