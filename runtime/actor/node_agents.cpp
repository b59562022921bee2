#include "runtime/actor/node_agents.hpp"

#include <algorithm>
#include <csignal>
#include <iterator>

#include <unistd.h>

#include "runtime/actor/last_words.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/host_name.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

constexpr const char* loopback = "127.0.0.1";
/// How often ClusterOptions::while_waiting is called.
constexpr milliseconds wait_turn{100};
/// How long agents that are to be suspended may take.
constexpr milliseconds suspend_limit{1000};

}  // namespace

NodeAgents::NodeAgents(const ClusterOptions& options, const LogPlaces& logs, Events events)
    : options_(options), logs_(logs), events_(std::move(events)), nodes_(options.nodes.size()) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) nodes_[i].name = options.nodes[i].name;
}

NodeAgents::~NodeAgents() { stop(milliseconds(1000)); }

Result<void> NodeAgents::start() {
  TROUPE_CHECK(listen());
  if (!options_.join) start_keepers();
  return {};
}

Result<void> NodeAgents::start_in_process(std::unique_ptr<InProcessNodes> nodes) {
  in_process_ = std::move(nodes);
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!is_for_the_start(i)) continue;
      Node& node = nodes_[i];
      node.agent = i + 1;
      node.agent_pid = ::getpid();
      node.host = host_name();
      node.arrival = ++arrivals_;
      node.came_at = std::chrono::steady_clock::now();
      node.ready = node.welcome = true;
    }
  }
  return in_process_->start();
}

Result<void> NodeAgents::listen() {
  const bool is_local = !options_.join && options_.starter->is_local();
  if (options_.address.empty() && !is_local) {
    return fail(ErrorCode::invalid_argument,
                "nodes of other hosts need an address of this process to come to");
  }
  PortRange ports = options_.ports;
  if (options_.join && options_.join->port != 0) {
    ports = {options_.join->port, options_.join->port};
  }
  TROUPE_TRY(
      control_,
      ControlServer::start(
          address(),
          {[this](AgentKey agent, ControlMessage message) {
             on_agent_message(agent, std::move(message));
           },
           [this](AgentKey agent, const Error& why) { on_agent_lost(agent, why); },
           [this](const std::string& node, const Error& why) { on_agent_refused(node, why); }},
          ports, options_.join ? std::optional(options_.join->token.bytes) : std::nullopt));
  return {};
}

std::uint16_t NodeAgents::admit_observer(const LinkPeer& peer, const Key& key, LinkEvents events) {
  control_->admit_other(peer, key, std::move(events));
  return control_->port();
}

std::string NodeAgents::address() const {
  if (!options_.observer_address.empty()) return options_.observer_address;
  return options_.address.empty() ? loopback : options_.address;
}

void NodeAgents::start_keepers() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (is_for_the_start(i)) start_keeper(i);
  }
}

void NodeAgents::start_keeper(std::size_t index) {
  NodeTicket ticket;
  ticket.node = nodes_[index].name;
  ticket.host = address();
  if (auto drawn = random_bytes(ticket.key.bytes); !drawn.ok()) {
    return on_process_ended(index, not_started + drawn.error().message);
  }
  {
    std::shared_lock lock(lifetime_);
    if (stopping_ || !control_) return;
    ticket.port = control_->port();
    control_->admit(ticket.node, ticket.key.bytes);
  }
  auto keeper = std::make_unique<NodeKeeper>(
      options_.starter, std::move(ticket), logs_.of_agent(nodes_[index].name),
      [this, index](const std::string& how) { on_process_ended(index, how); });
  std::lock_guard lock(mutex_);
  nodes_[index].keeper = std::move(keeper);
}

void NodeAgents::start_lost() {
  if (options_.join) return;
  const std::lock_guard starts(starts_mutex_);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    std::unique_ptr<NodeKeeper> ended;
    {
      std::lock_guard lock(mutex_);
      Node& node = nodes_[i];
      if (!all_came_ || stopping_ || !node.over || !node.keeper || node.dismissed) continue;
      ended = std::move(node.keeper);
      node.over = node.ready = node.welcome = node.suspended = false;
    }
    ended->join();
    start_keeper(i);
  }
}

Result<void> NodeAgents::wait() {
  Deadline deadline = deadline_in(options_.start_timeout);
  std::unique_lock lock(mutex_);
  while (!all_settled() && !deadline.is_over()) {
    const ClusterWait state = waiting();
    // A copy that does not get on is given up by itself.
    if (state.copies.hosts > 0) deadline = deadline_in(options_.start_timeout);
    lock.unlock();
    if (options_.while_waiting && !options_.while_waiting(state)) {
      return fail(ErrorCode::cancelled, "stopped before all nodes had come");
    }
    const milliseconds turn = judge_nodes(events_.judge) ? judge_turn : wait_turn;
    lock.lock();
    const std::uint64_t seen = arrivals_;
    (void)wait_for(changed_, lock, std::min<std::chrono::nanoseconds>(turn, deadline.left()),
                   [&] { return arrivals_ != seen || all_settled(); });
  }
  all_came_ = welcome_nodes().size() == nodes_for_the_start();
  if (!all_came_ && options_.join) return not_all_joined();
  refused_at_start_ = refused_.size();
  if (options_.while_waiting) {
    const ClusterWait state = waiting();
    lock.unlock();
    (void)options_.while_waiting(state);
    lock.lock();
  }
  std::optional<Error> failed;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!is_for_the_start(i)) continue;
    auto came = has_come(nodes_[i]);
    if (came.ok()) continue;
    if (!failed) {
      failed = std::move(came).error();
    } else {
      failed->message += "\n" + came.error().message;
    }
  }
  if (failed) return *std::move(failed);
  if (events_.judge_replacement || options_.join) {
    replacements_ =
        std::jthread([this](const std::stop_token& stop) { receive_replacements(stop); });
  }
  return {};
}

bool NodeAgents::is_settled(std::size_t index) const {
  const Node& node = nodes_[index];
  return !is_for_the_start(index) || node.welcome || node.over || !node.refused.empty();
}

bool NodeAgents::all_settled() const {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!is_settled(i)) return false;
  }
  return true;
}

std::vector<std::string> NodeAgents::welcome_nodes() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (is_for_the_start(i) && nodes_[i].welcome) names.push_back(nodes_[i].name);
  }
  return names;
}

std::size_t NodeAgents::nodes_for_the_start() const {
  return static_cast<std::size_t>(
      std::ranges::count(options_.nodes, false, &NodeSpec::joins_later));
}

void NodeAgents::vacate(std::size_t index) {
  nodes_[index] = Node{};
  nodes_[index].name = options_.nodes[index].name;
}

ClusterWait NodeAgents::waiting() {
  return {welcome_nodes(),
          refused_,
          nodes_for_the_start(),
          control_ ? control_->port() : std::uint16_t{0},
          options_.starter ? options_.starter->copies() : ProgramCopies{},
          [this] { suspend(suspend_limit); },
          [this] { resume(); }};
}

Error NodeAgents::not_all_joined() const {
  return fail(ErrorCode::timed_out,
              "{} of {} nodes have joined within {} s; agents with another token are refused, and "
              "counted in the log{}",
              welcome_nodes().size(), nodes_for_the_start(),
              std::chrono::duration<double>(options_.start_timeout).count(),
              last_refusal_.empty() ? "" : "; refused: " + last_refusal_);
}

/// Says in one line why a node's agent has not come.
Result<void> NodeAgents::has_come(const Node& node) const {
  if (!node.refused.empty()) return Error{ErrorCode::unsupported, node.refused};
  const std::string log = logs_.of_agent(node.name);
  const std::string where = log.empty() ? "" : fmt::format("; its log is {}", log);
  const auto remedy_of = [&](const std::string& said) {
    std::string remedy = remedy_for_unreached_driver(said);
    if (remedy.empty() && options_.starter) remedy = options_.starter->remedy(node.name, said);
    return remedy.empty() ? "" : ": " + remedy;
  };
  if (node.over && node.how.starts_with(not_started)) {
    return fail(ErrorCode::peer_died, "the agent of node '{}' {}{}", node.name, node.how,
                remedy_of(node.how));
  }
  if (node.over) {
    const std::string said = last_words(log);
    return fail(ErrorCode::peer_died, "the agent of node '{}' {} before it was ready{}{}{}",
                node.name, node.how, said.empty() ? "" : fmt::format(" ({})", said), where,
                remedy_of(said));
  }
  if (node.ready) return {};
  return fail(ErrorCode::timed_out, "the agent of node '{}' has not reported within {} ms{}",
              node.name, options_.start_timeout.count(), where);
}

void NodeAgents::on_agent_message(AgentKey agent, ControlMessage message) {
  if (const auto* hello = std::get_if<AgentReady>(&message)) return on_agent_ready(agent, *hello);
  std::size_t index = 0;
  {
    std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(nodes_, agent, &Node::agent);
    if (found == nodes_.end()) return;  // it was given up
    index = static_cast<std::size_t>(found - nodes_.begin());
    if (std::holds_alternative<Suspended>(message)) {
      found->suspended = true;
      changed_.notify_all();
      return;
    }
  }
  events_.on_message(index, std::move(message));
}

void NodeAgents::on_agent_lost(AgentKey agent, const Error& why) {
  std::size_t index = 0;
  bool is_replaceable = false;
  {
    std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(nodes_, agent, &Node::agent);
    if (found == nodes_.end()) {
      std::erase_if(early_, [agent](const EarlyAgent& early) { return early.key == agent; });
      return;
    }
    if (!stopping_) log::info("an agent is lost: {}", why.message);
    found->agent = 0;
    changed_.notify_all();
    if (found->keeper) {
      // One that is silent does not end by itself, as one does whose link has closed.
      const bool is_silent = why.code == ErrorCode::timed_out;
      if (!stopping_) {
        found->keeper->give_up(why.message,
                               is_silent ? std::chrono::milliseconds(0) : NodeKeeper::a_moment);
      }
      return;
    }
    index = static_cast<std::size_t>(found - nodes_.begin());
    if (!all_came_ && !stopping_) {  // another one may take its place
      log::warning("the agent of node '{}' is gone before all nodes have joined", found->name);
      found->ready = found->welcome = false;
      is_replaceable = true;
    }
  }
  if (is_replaceable) {
    events_.on_ended(index, fmt::format("is gone ({})", why.message));
    std::lock_guard lock(mutex_);
    vacate(index);
    return;
  }
  on_process_ended(index, fmt::format("is gone ({})", why.message));
  if (stopping_) return;
  std::lock_guard lock(mutex_);  // another one may take its place
  nodes_[index].over = nodes_[index].ready = nodes_[index].welcome = false;
  seat_early_agents();
}

void NodeAgents::on_process_ended(std::size_t index, const std::string& how) {
  std::string name, why = how;
  {
    std::lock_guard lock(mutex_);
    Node& node = nodes_[index];
    node.is_awaited = false;
    if (node.dismissed) why = "was drained";
    node.over = true;
    node.how = why;
    node.agent = 0;
    name = node.name;
    changed_.notify_all();
  }
  if (stopping_) return;
  if (why == how) {
    log::error("the agent of node '{}' {}", name, how);
  } else {
    log::info("node '{}' {}", name, why);
  }
  events_.on_ended(index, why);
}

Result<void> NodeAgents::send(std::size_t node, const ControlMessage& message) {
  AgentKey agent = 0;
  {
    std::lock_guard lock(mutex_);
    agent = nodes_[node].agent;
  }
  // Not under mutex_: sending wakes another thread, for which this one may have to leave its core,
  // and events wait for that mutex.
  std::shared_lock lock(lifetime_);
  if (agent != 0 && in_process_) {
    in_process_->receive(node, message);
    return {};
  }
  if (agent == 0 || !control_) {
    return fail(ErrorCode::peer_died, "the agent of its node is not there");
  }
  return control_->send(agent, message);
}

Result<void> NodeAgents::check_bindable(std::size_t index) const {
  std::lock_guard lock(mutex_);
  const Node& node = nodes_[index];
  const int counted = options_.nodes[index].cpus;
  if (counted > std::ssize(node.cpus)) {
    return fail(ErrorCode::unsupported, "node '{}' counts {} cpus, but its agent may use {}",
                node.name, counted, node.cpus.size());
  }
  for (const Node& other : nodes_) {
    std::vector<std::int32_t> both;
    if (&other == &node || !other.ready || other.host != node.host) continue;
    std::ranges::set_intersection(node.cpus, other.cpus, std::back_inserter(both));
    if (both.empty()) continue;
    return fail(ErrorCode::unsupported, "the nodes '{}' and '{}' share CPUs of {}", node.name,
                other.name, node.host);
  }
  return {};
}

void NodeAgents::send_to_all(const ControlMessage& message) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) (void)send(i, message);
}

void NodeAgents::suspend(milliseconds timeout) {
  if (in_process_) return;  // nobody beside this process
  {
    std::lock_guard lock(mutex_);
    is_suspended_ = true;
  }
  send_to_all(Suspend{});
  std::unique_lock lock(mutex_);
  (void)wait_for(changed_, lock, timeout, [this] {
    return std::ranges::all_of(nodes_,
                               [](const Node& node) { return node.agent == 0 || node.suspended; });
  });
}

void NodeAgents::resume() {
  {
    std::lock_guard lock(mutex_);
    is_suspended_ = false;
    for (Node& node : nodes_) node.suspended = false;
  }
  send_to_all(Resume{});
}

void NodeAgents::stop(milliseconds timeout) {
  if (stopping_.exchange(true)) return;
  if (in_process_) return in_process_->stop(timeout);
  const std::lock_guard starts(starts_mutex_);  // a start that goes on ends first
  replacements_.request_stop();
  changed_.notify_all();
  if (replacements_.joinable()) replacements_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const EarlyAgent& early : std::exchange(early_, {})) turn_away(early.key, early.hello);
  }
  send_to_all(Shutdown{timeout.count() / 2});
  std::unique_lock lock(mutex_);
  const auto all_over = [this] {
    return std::ranges::all_of(
        nodes_, [](const Node& node) { return node.over || (!node.keeper && node.agent == 0); });
  };
  if (!wait_for(changed_, lock, timeout / 2 + milliseconds(50), all_over)) {
    for (Node& node : nodes_) {
      if (node.keeper && !node.over) node.keeper->signal(SIGKILL);
    }
  }
  lock.unlock();
  for (Node& node : nodes_) {
    if (node.keeper) node.keeper->join();
  }
  lock.lock();
  std::unique_ptr<ControlServer> control;
  {
    std::lock_guard no_sender(lifetime_);
    control = std::move(control_);
  }
  lock.unlock();
  control.reset();  // without the lock: its last events may wait for it
}

std::vector<Cluster::NodeInfo> NodeAgents::infos(std::size_t first, std::size_t count) const {
  std::lock_guard lock(mutex_);
  std::vector<Cluster::NodeInfo> infos;
  for (std::size_t i = first; i < nodes_.size() && infos.size() < count; ++i) {
    const Node& node = nodes_[i];
    NodeSpec spec = options_.nodes[i];
    spec.name = node.name;
    const bool is_alive = node.ready && !node.over;
    infos.push_back({.spec = std::move(spec),
                     .host = node.host,
                     .address = node.address,
                     .agent_pid = node.agent_pid,
                     .alive = is_alive,
                     .lost_because = node.how,
                     .was_drained = node.dismissed && !is_alive,
                     .came_at = node.came_at});
  }
  return infos;
}

}  // namespace troupe
