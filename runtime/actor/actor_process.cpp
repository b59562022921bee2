#include "runtime/actor/actor_process.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/actor/actor_cell.hpp"
#include "runtime/actor/agent_requests.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/actor/late_exits.hpp"
#include "runtime/actor/process_inquiry.hpp"
#include "runtime/base/log.hpp"
#include "runtime/call/network_transport.hpp"
#include "runtime/control/messages.hpp"
#include "runtime/process/child_channel.hpp"
#include "runtime/process/process_stack.hpp"
#include "runtime/process/prompt_threads.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds agent_timeout{5000};  ///< for an answer from the agent
constexpr milliseconds end_grace{800};       ///< for running methods when the process must end
constexpr milliseconds last_words{100};      ///< after end_grace, for answers to be sent
constexpr milliseconds flush_limit{10000};   ///< for the answers of an actor that has ended
constexpr milliseconds exit_grace{5000};     ///< for an actor that has asked to end itself

class ActorProcess {
 public:
  ActorProcess(UniqueFd parent, const ActorTypes& types)
      : channel_(std::move(parent)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        types_(types) {}

  Result<void> boot();
  Result<void> start_objects(const ProcessBootstrap& bootstrap, CallKeys keys);
  [[noreturn]] void run();
  /// Gives `why` as the reason for which the actor that the process was started for is not made.
  void refuse_actor(const Error& why);

 private:
  void tell(const ControlMessage& message);
  void on_message(ChildChannel::Message message);
  void start_actor(StartActor start);
  std::shared_ptr<const ActorCell::Events> make_events();
  void on_actor_gone(const ActorGone& gone);
  /// Tells those who call it from this process that it has ended.
  void tell_callers(const ActorAddress& ended, bool exited, const std::string& reason);
  /// Unless its next incarnation has taken its place.
  void forget(ActorId id, std::uint32_t incarnation);
  void begin_to_end();
  /// How long to wait for messages; none if the process is to end now.
  std::optional<milliseconds> time_left();
  /// Reports actors that have asked to end themselves and have not within exit_grace. The process
  /// ends with the last of its actors; its threads and devices with it.
  void give_up_late_exits();
  [[noreturn]] void end();

  ChildChannel channel_;
  UniqueFd wake_;  ///< an eventfd, rung when an actor is gone
  const ActorTypes& types_;
  std::optional<PromptThreads> prompt_;  ///< this thread's heartbeats are in time
  std::shared_ptr<HostServices> services_;
  std::mutex mutex_;
  std::map<ActorId, std::shared_ptr<ActorCell>> cells_;
  const std::shared_ptr<const ActorCell::Events> events_ = make_events();
  LateExits exits_{exit_grace};
  AgentRequests requests_{[this](const ControlMessage& message) { tell(message); }, agent_timeout};
  std::optional<Clock::time_point> ends_at_;  ///< set when asked to end; used by the main thread
                                              ///< only
};

Result<void> ActorProcess::boot() {
  TROUPE_TRY(auto first, channel_.receive_one(10000));
  TROUPE_TRY(auto message, decode_message(first.bytes, ControlEdge::agent_to_process));
  wipe(first.bytes);
  const auto* bootstrap = std::get_if<ProcessBootstrap>(&message);
  if (bootstrap == nullptr)
    return fail(ErrorCode::corrupt_data, "the agent did not send a bootstrap");
  TROUPE_CHECK(log::open(bootstrap->process_name, bootstrap->log_path,
                         static_cast<log::Level>(bootstrap->log_level)));
  let_parent_trace();
  types_.prepare_process({bootstrap->node, bootstrap->address});
  CallHub::Options calls;
  calls.credits = bootstrap->credits;
  calls.credit_bytes = bootstrap->credit_bytes;
  calls.credit_timeout = milliseconds(bootstrap->credit_timeout_ms);
  calls.cause_grace = milliseconds(bootstrap->cause_grace_ms);
  calls.on_first_call = [this](const ActorAddress& actor) {
    if (is_store(actor.id)) return;  // no actor
    tell(FollowActor{actor.id, actor.is_restartable});
  };
  CallKeys keys{bootstrap->call_name, bootstrap->call_key,
                [this](const std::string& listener, CallKeys::Answer answer) {
                  requests_.call_key(listener, std::move(answer));
                }};
  TROUPE_TRY(auto transport, make_network_transport(keys, {bootstrap->locality, bootstrap->address,
                                                           bootstrap->ports}));
  TROUPE_TRY(auto hub, CallHub::create(std::move(transport), calls));
  services_ = std::make_shared<HostServices>(HostServices{
      bootstrap->node, bootstrap->address, bootstrap->ports, bootstrap->job_folder,
      bootstrap->log_path == log::to_stderr ? "" : bootstrap->log_path,
      [this](const ActorAddress& asker, const ChannelScope& scope) {
        return requests_.channel_key(asker.id, scope);
      },
      hub, std::make_shared<WatchTable>([this](ActorId actor) -> std::optional<ActorDown> {
        tell(FollowActor{actor, false});
        return std::nullopt;
      }),
      ActorHandle<Directory>(bootstrap->directory, hub),
      [this](std::string_view name, std::size_t bytes) { return requests_.region(name, bytes); },
      [this](std::string_view prefix) { return requests_.release_regions(prefix); },
      [this](ActorId owner, const SpawnOptions& options, std::string type,
             EncodedArguments arguments, AgentRequests::OnSpawned done) {
        requests_.spawn(owner, options, std::move(type), std::move(arguments), std::move(done));
      },
      [this](ActorId owner, ActorId actor) { tell(StopOwned{owner, actor}); },
      std::make_shared<TaskPool>(TaskPool::Options{.name = "actors"}),
      [hub, service = task_service_at(bootstrap->directory.endpoint)](const SubmittedTask& task,
                                                                      CallCompletion done) {
        return hub->call(service, static_cast<std::uint16_t>(ServiceMethod::submit), encode(task),
                         std::move(done));
      }});
  return start_objects(*bootstrap, std::move(keys));
}

Result<void> ActorProcess::start_objects(const ProcessBootstrap& bootstrap, CallKeys keys) {
  ObjectStoreOptions options;
  options.process_name = bootstrap.process_name;
  options.node = bootstrap.node;
  options.locality = bootstrap.locality;
  options.address = bootstrap.address;
  options.ports = bootstrap.ports;
  options.keys = std::move(keys);
  options.node_bytes = bootstrap.object_store_bytes;
  options.spill_folder = bootstrap.object_spill_folder;
  options.ledger_memory = [this](std::size_t bytes) {
    return requests_.region("troupe.objects", bytes);
  };
  TROUPE_TRY(services_->objects, ObjectStore::start(services_->hub, std::move(options)));
  return {};
}

void ActorProcess::refuse_actor(const Error& why) {
  const auto message = channel_.receive_one(static_cast<int>(agent_timeout.count()));
  if (!message.ok()) return;
  const auto decoded = decode_message(message->bytes, ControlEdge::agent_to_process);
  if (!decoded.ok()) return;
  if (const auto* start = std::get_if<StartActor>(&*decoded)) {
    tell(ActorFailed{start->actor.id, why.code, why.message});
  }
}

void ActorProcess::run() {
  prompt_.emplace();
  // Serve until the end: actors that are being destroyed may ask the agent for something.
  while (const auto left = time_left()) {
    give_up_late_exits();
    auto messages = channel_.receive();  // first: some may have arrived with the bootstrap
    if (!messages.ok()) {
      log::warning("the agent is gone; ending");
      ::_exit(1);
    }
    for (auto& message : *messages) on_message(std::move(message));
    if (!messages->empty()) continue;
    pollfd polled[] = {{channel_.fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    ::poll(polled, 2, static_cast<int>(left->count()));
    eventfd_t ignored = 0;
    ::eventfd_read(wake_.get(), &ignored);
  }
  end();
}

void ActorProcess::tell(const ControlMessage& message) {
  // If the agent is gone, the main thread sees it and ends the process.
  if (channel_.send(encode_message(message)).ok())
    (void)channel_.drain(static_cast<int>(agent_timeout.count()));
}

void ActorProcess::on_message(ChildChannel::Message message) {
  auto decoded = decode_message(message.bytes, ControlEdge::agent_to_process);
  if (!decoded.ok()) return log::error("from the agent: {}", decoded.error().message);
  if (std::holds_alternative<Heartbeat>(*decoded)) return tell(Heartbeat{});
  if (auto* start = std::get_if<StartActor>(&*decoded)) {
    prompt_.reset();  // an actor's threads are as any other
    start_actor(std::move(*start));
    prompt_.emplace();
    return;
  }
  if (const auto* gone = std::get_if<ActorGone>(&*decoded)) return on_actor_gone(*gone);
  if (const auto* moved = std::get_if<ActorMoved>(&*decoded)) {
    return services_->hub->mark_moved(moved->actor);
  }
  if (const auto* lost = std::get_if<NodeGone>(&*decoded)) {
    return services_->objects->on_node_lost(lost->locality, lost->how);
  }
  if (const auto* reply = std::get_if<RegionReply>(&*decoded)) {
    return requests_.on_reply(*reply, std::move(message.fd));
  }
  if (const auto* reply = std::get_if<KeyReply>(&*decoded)) return requests_.on_reply(*reply);
  if (const auto* reply = std::get_if<SpawnReply>(&*decoded)) return requests_.on_reply(*reply);
  if (const auto* ask = std::get_if<AskProcesses>(&*decoded)) {
    return tell(ProcessReport{
        .request = ask->request,
        .bytes = answer_inquiry(*services_->hub->observer(), *services_->objects, *ask)});
  }
  if (std::holds_alternative<StopProcess>(*decoded)) return begin_to_end();
  if (const auto* stop = std::get_if<StopActor>(&*decoded)) {
    std::lock_guard lock(mutex_);
    if (const auto found = cells_.find(stop->actor); found != cells_.end()) found->second->stop();
  }
}

void ActorProcess::start_actor(StartActor start) {
  const ActorId id = start.actor.id;
  auto factory = types_.find(start.actor.type);
  if (!factory.ok()) return tell(ActorFailed{id, factory.error().code, factory.error().message});
  start.actor.endpoint = services_->hub->endpoint();
  auto make = [make = *std::move(factory), arguments = std::move(start.arguments)](
                  ActorContext& context) { return make(context, arguments); };
  auto on_made = [this, id, incarnation = start.actor.incarnation](const Result<void>& made) {
    if (made.ok()) return tell(ActorStarted{id, services_->hub->endpoint(), ::getpid()});
    log::error("actor {} could not be made: {}", id, made.error().message);
    tell(ActorFailed{id, made.error().code, made.error().message});
    forget(id, incarnation);
  };
  std::unique_lock lock(mutex_);
  auto cell = ActorCell::start(
      {std::make_shared<const ActorAddress>(std::move(start.actor)), std::move(start.devices),
       start.dedicated_thread, start.max_concurrency, std::move(make), std::move(on_made), events_},
      services_);
  if (cell.ok()) {
    cells_[id] = *std::move(cell);
    return;
  }
  lock.unlock();
  tell(ActorFailed{id, cell.error().code, cell.error().message});
}

std::shared_ptr<const ActorCell::Events> ActorProcess::make_events() {
  ActorCell::Events events;
  events.on_exit_asked = [this](const ActorAddress& actor, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    exits_.ask(actor.id, reason, Clock::now());
    ::eventfd_write(wake_.get(), 1);
  };
  events.on_ended = [this](const ActorAddress& actor, bool exited, const std::string& reason) {
    std::unique_lock lock(mutex_);
    const bool is_told = !exits_.note_end(actor.id);
    lock.unlock();
    if (is_told) return forget(actor.id, actor.incarnation);
    tell_callers(actor, exited, reason);
    // The driver may end the process as soon as it knows.
    if (auto sent = services_->hub->flush(flush_limit); !sent.ok()) {
      log::warning("the last answers of actor {}: {}", actor.id, sent.error().message);
    }
    tell(ActorEnded{actor.id, exited, reason});
    forget(actor.id, actor.incarnation);
  };
  return std::make_shared<const ActorCell::Events>(std::move(events));
}

void ActorProcess::tell_callers(const ActorAddress& ended, bool exited, const std::string& reason) {
  // Others hear it from the driver; actors of this process call without following each other.
  if (!exited) {
    services_->hub->mark_down(ended.id, fmt::format("actor '{}' was stopped", ended.name));
    return;
  }
  std::string why = fmt::format("actor '{}' has exited: {}", ended.name, reason);
  if (!ended.is_restartable) return services_->hub->mark_down(ended.id, std::move(why));
  // The driver says whether it comes back.
  services_->hub->mark_restarting(ended.id, ended.incarnation, std::move(why));
  tell(FollowActor{ended.id, true});
}

void ActorProcess::forget(ActorId id, std::uint32_t incarnation) {
  std::lock_guard lock(mutex_);
  const auto found = cells_.find(id);
  if (found != cells_.end() && found->second->address().incarnation == incarnation) {
    cells_.erase(found);
  }
  ::eventfd_write(wake_.get(), 1);
}

void ActorProcess::on_actor_gone(const ActorGone& gone) {
  auto down = decode<ActorDown>(gone.down);
  if (!down.ok()) return log::error("from the agent: {}", down.error().message);
  services_->report_end(*down);
}

void ActorProcess::begin_to_end() {
  if (ends_at_) return;
  ends_at_ = Clock::now() + end_grace;
  std::lock_guard lock(mutex_);
  for (auto& [id, cell] : cells_) cell->stop();
}

std::optional<milliseconds> ActorProcess::time_left() {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (ends_at_) {
    const auto left = std::chrono::ceil<milliseconds>(*ends_at_ - now);
    if (cells_.empty() || left <= milliseconds(0)) return std::nullopt;
    return left;
  }
  return exits_.left(now).value_or(milliseconds(-1));  // no limit
}

void ActorProcess::give_up_late_exits() {
  std::vector<ActorEnded> late;
  bool are_all = false;
  {
    const std::lock_guard lock(mutex_);
    for (const LateExits::Late& exit : exits_.take_late(Clock::now())) {
      late.push_back({exit.actor, true,
                      fmt::format("{} (it has not ended within {} ms of that)", exit.reason,
                                  exit_grace.count())});
    }
    if (late.empty()) return;
    are_all = std::ranges::all_of(
        cells_, [this](const auto& cell) { return exits_.is_given_up(cell.first); });
  }
  for (ActorEnded& ended : late) {
    log::warning("actor {} has asked to end, and has not within {} ms", ended.actor,
                 exit_grace.count());
    services_->hub->mark_down(ended.actor, ended.reason);
    tell(std::move(ended));
  }
  if (!are_all) return;
  (void)services_->hub->flush(last_words);
  ::_exit(1);
}

void ActorProcess::end() {
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, cell] : cells_) {
      log::warning("actor {} is still busy; ending the process without it", id);
    }
  }
  const auto left = std::chrono::ceil<milliseconds>(*ends_at_ - Clock::now());
  (void)services_->hub->flush(left + last_words);
  // Last words: what was counted stays in the cluster's metrics.
  tell(ProcessReport{.bytes = encode(services_->hub->observer()->snapshot())});
  log::info("ending as told");
  ::_exit(0);  // threads may still run: no destructor may free what they use
}

}  // namespace

void run_actor_process(UniqueFd parent, const ActorTypes& types) {
  // Lives until _exit: actor threads refer to it.
  auto* process = new ActorProcess(std::move(parent), types);
  if (auto booted = process->boot(); !booted.ok()) {
    log::error("actor process: {}", booted.error().message);
    process->refuse_actor(booted.error());
    ::_exit(1);
  }
  process->run();
}

}  // namespace troupe
