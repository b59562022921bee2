#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/actor/node_agents.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/log.hpp"
#include "runtime/node/node_name.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

/// How often the clock is looked at while no verdict is pending.
constexpr milliseconds idle_turn{1000};
/// Refusals that are told of: a few for each node of a large job.
constexpr std::size_t max_refusals = 10'000;
/// How long an agent that has come too early waits for a place, and how many do.
constexpr milliseconds early_limit{5000};
constexpr std::size_t max_early_agents = 64;

}  // namespace

// Agents that come, at the start or in place of lost ones: their places, and who judges them.

NodeAgents::Node* NodeAgents::place_of(const AgentReady& hello) {
  const auto found = std::ranges::find_if(nodes_, [&](const Node& node) {
    return !node.ready && !node.over && (options_.join || node.name == hello.node);
  });
  return found == nodes_.end() ? nullptr : &*found;
}

std::string NodeAgents::unused_name(const std::string& host) const {
  const auto is_taken = [&](const std::string& name) {
    return std::ranges::any_of(nodes_,
                               [&](const Node& node) { return node.ready && node.name == name; });
  };
  return free_node_name(node_name_of(host), is_taken);
}

void NodeAgents::on_agent_ready(AgentKey agent, const AgentReady& hello) {
  std::lock_guard lock(mutex_);
  if (!control_) return;
  Node* node = place_of(hello);
  if (node != nullptr) return seat(*node, agent, hello, std::chrono::steady_clock::now());
  if (!is_early(agent, hello)) turn_away(agent, hello);
}

/// The end of an agent is found out within silence_limit: one that comes to take its place may come
/// before that.
bool NodeAgents::is_early(AgentKey agent, const AgentReady& hello) {
  if (!options_.join || !all_came_ || early_.size() == max_early_agents) return false;
  log::info("an agent on {} waits for a place", hello.host);
  early_.push_back({agent, hello, std::chrono::steady_clock::now(), deadline_in(early_limit)});
  return true;
}

void NodeAgents::turn_away(AgentKey agent, const AgentReady& hello) {
  const std::string why = options_.join
                              ? fmt::format("this job has all of its {} nodes", nodes_.size())
                              : fmt::format("node '{}' has its agent, or has ended", hello.node);
  log::warning("an agent on {} wants to join, but {}", hello.host, why);
  if (control_) (void)control_->send(agent, AgentRefused{why});
}

/// One for which there is no place waits on.
void NodeAgents::seat_early_agents() {
  while (!early_.empty() && control_) {
    Node* const node = place_of(early_.front().hello);
    if (node == nullptr) return;
    const EarlyAgent early = std::move(early_.front());
    early_.erase(early_.begin());
    seat(*node, early.key, early.hello, early.came_at);
  }
}

void NodeAgents::seat(Node& node, AgentKey agent, const AgentReady& hello,
                      std::chrono::steady_clock::time_point came_at) {
  if (options_.join) node.name = unused_name(hello.host);
  // An error means that it is lost again.
  if (!control_->send(agent, events_.bootstrap_of(node.name, hello)).ok()) return;
  const auto index = static_cast<std::size_t>(&node - nodes_.data());
  const bool is_later = all_came_ || !is_for_the_start(index);
  const bool on_trial = is_later && events_.judge_replacement != nullptr;
  if (options_.join || is_later) events_.on_named(index, node.name, on_trial);
  node.how.clear();
  node.dismissed = node.is_awaited = false;
  node.agent = agent;
  node.agent_pid = hello.pid;
  node.host = hello.host;
  node.address = hello.address;
  node.came_at = came_at;
  node.cpus = hello.cpus;
  std::ranges::sort(node.cpus);
  node.arrival = ++arrivals_;
  node.ready = true;
  node.welcome = is_later ? !on_trial : !events_.judge;
  if (is_suspended_) (void)control_->send(agent, Suspend{});
  changed_.notify_all();
  log::debug("the agent of node '{}' has come from {} ({}), pid {}", node.name, hello.host,
             hello.address, hello.pid);
}

void NodeAgents::on_agent_refused(const std::string& name, const Error& why) {
  log::error("{}", why.message);
  std::lock_guard lock(mutex_);
  if (all_came_) {
    note_refusal(why.message);
  } else {
    last_refusal_ = why.message;
  }
  for (Node& node : nodes_) {
    if (node.name == name && !node.ready) node.refused = why.message;
  }
  changed_.notify_all();
}

bool NodeAgents::judge_nodes(const Judge& judge) {
  if (!judge) return false;
  std::vector<JoinedNode> unjudged;
  {
    std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      // Those that join later are judged once the others are there.
      const bool is_its_turn = all_came_ || is_for_the_start(i);
      if (is_its_turn && is_there(node) && !node.welcome) {
        unjudged.push_back({i, node.arrival, node.name, node.address});
      }
    }
  }
  bool some_are_pending = false;
  for (const JoinedNode& joined : unjudged) {
    const NodeVerdict verdict = judge(joined);
    if (verdict.kind == NodeVerdict::Kind::refused) refuse(joined, verdict.why);
    some_are_pending |= verdict.kind == NodeVerdict::Kind::pending;
    if (verdict.kind != NodeVerdict::Kind::welcome) continue;
    std::lock_guard lock(mutex_);
    Node& node = nodes_[joined.index];
    node.welcome = is_there(node) && node.arrival == joined.arrival;
    if (!node.welcome || !all_came_) continue;
    log::info("node '{}' has joined", node.name);
    events_.on_welcome(joined.index);
  }
  return some_are_pending;
}

/// Turns the agent away, and frees its place. One that has died is no refusal, and may be why the
/// verdict of a trial is what it is: its end is found out soon.
void NodeAgents::refuse(const JoinedNode& joined, const std::string& why) {
  Node& node = nodes_[joined.index];
  {
    std::unique_lock lock(mutex_);
    const auto is_gone = [&] { return !is_there(node) || node.arrival != joined.arrival; };
    const milliseconds moment = all_came_ ? NodeKeeper::a_moment : milliseconds(0);
    if (wait_for(changed_, lock, moment, is_gone)) return;
    (void)control_->send(node.agent, AgentRefused{why});
    node.agent = 0;  // what it says from now on is ignored
    note_refusal(fmt::format("{}: {}", joined.name, why));
  }
  log::warning("node '{}' is refused: {}", joined.name, why);
  events_.on_ended(joined.index, "was refused: " + why);
  std::lock_guard lock(mutex_);
  if (node.arrival != joined.arrival) return;
  if (node.keeper) {  // it is started again, perhaps, once it has ended
    node.ready = node.welcome = false;
    node.keeper->give_up("was refused: " + why);
    return;
  }
  vacate(joined.index);
  seat_early_agents();
}

/// An agent that is started again and again is told of once. mutex_ is held.
void NodeAgents::note_refusal(std::string refusal) {
  if (refused_.size() < max_refusals && std::ranges::find(refused_, refusal) == refused_.end()) {
    refused_.push_back(refusal);
  }
  last_refusal_ = std::move(refusal);
}

std::vector<std::string> NodeAgents::refused() const {
  std::lock_guard lock(mutex_);
  return {refused_.begin() + static_cast<std::ptrdiff_t>(refused_at_start_), refused_.end()};
}

void NodeAgents::receive_replacements(const std::stop_token& stop) {
  bool some_are_pending = false;
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      const std::uint64_t seen = arrivals_;
      (void)wait_for(changed_, lock, some_are_pending ? judge_turn : idle_turn,
                     [&] { return stop.stop_requested() || arrivals_ != seen; });
      std::erase_if(early_, [this](EarlyAgent& early) {
        const bool is_over = early.until.is_over();
        if (is_over) turn_away(early.key, early.hello);
        return is_over;
      });
    }
    if (!stop.stop_requested()) some_are_pending = judge_nodes(events_.judge_replacement);
  }
}

}  // namespace troupe
