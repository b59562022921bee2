#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/actor/cluster.hpp"
#include "runtime/actor/in_process_nodes.hpp"
#include "runtime/actor/log_places.hpp"
#include "runtime/actor/node_keeper.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/control/control_plane.hpp"

namespace troupe {

/// The agents of a job's nodes, as the driver has them: it starts them or lets them join, waits for
/// all, sends them messages, hears of their ends, and ends them. Nodes are counted from 0 in the
/// order of ClusterOptions::nodes, which agents that join fill as they come. Callable from any
/// thread.
class NodeAgents {
 public:
  /// Callbacks, each on a thread of its own kind, which must not block.
  struct Events {
    /// What an agent that has come is to be given.
    std::function<AgentBootstrap(const std::string& node, const AgentReady& hello)> bootstrap_of{};
    /// An agent has joined as this node, or the agent of a lost node has come again.
    /// `on_trial`: it is judged by judge_replacement first.
    std::function<void(std::size_t node, const std::string& name, bool on_trial)> on_named = {};
    std::function<void(std::size_t node, ControlMessage message)> on_message = {};
    /// See ClusterOptions::judge; null: all are welcome.
    std::function<NodeVerdict(const JoinedNode& node)> judge = {};
    /// See ClusterOptions::judge_replacement; null: all are welcome. On a thread of this object.
    std::function<NodeVerdict(const JoinedNode& node)> judge_replacement = {};
    /// A node on trial is welcome.
    std::function<void(std::size_t node)> on_welcome = {};
    /// The agent has ended or is lost ("(pid 7) was killed by signal 9 (SIGKILL)").
    std::function<void(std::size_t node, const std::string& how)> on_ended;
  };

  /// `options` outlives this object.
  NodeAgents(const ClusterOptions& options, const LogPlaces& logs, Events events);
  ~NodeAgents();  ///< stops

  /// Has the agents started, or lets them come.
  Result<void> start();
  /// In place of start(): the nodes are these, and are there.
  Result<void> start_in_process(std::unique_ptr<InProcessNodes> nodes);
  /// Has the agents of lost nodes started again, once all have come once.
  void start_lost();
  /// Waits until all have come. Errors: a line for each that has not; cancelled.
  Result<void> wait();

  /// Where agents come to; numeric.
  std::string address() const;
  /// Lets a peer that is no agent in, until stop(); returns the port. After start(). See
  /// ControlServer::admit_other.
  std::uint16_t admit_observer(const LinkPeer& peer, const Key& key, LinkEvents events);

  /// The node of that name. Errors: not_found.
  Result<std::size_t> index_of(const std::string& name) const;
  /// See Cluster::start_node.
  Result<void> start_node(const std::string& name);
  /// See Cluster::dismiss_node.
  Result<void> dismiss(std::size_t node);

  /// See Cluster::refused_nodes.
  std::vector<std::string> refused() const;

  /// Sends to the node's agent. Errors: peer_died if it is not there; those of ControlServer::send.
  Result<void> send(std::size_t node, const ControlMessage& message);
  void send_to_all(const ControlMessage& message);
  /// Sends Suspend, and waits at most `timeout` until all have answered.
  void suspend(std::chrono::milliseconds timeout);
  void resume();
  /// Ends all agents: a message, then SIGKILL for those that were started from here after half of
  /// `timeout`. No event follows. Idempotent.
  void stop(std::chrono::milliseconds timeout);

  /// Ok if the cpus that the node counts are CPUs of its own, so that actors can be bound to them.
  /// Errors: unsupported, with the reason.
  Result<void> check_bindable(std::size_t node) const;

  std::size_t size() const { return nodes_.size(); }
  std::vector<Cluster::NodeInfo> infos() const { return infos(0, size()); }
  /// Those of at most `count` nodes from `first` on.
  std::vector<Cluster::NodeInfo> infos(std::size_t first, std::size_t count) const;

 private:
  struct Node {
    std::string name;
    std::unique_ptr<NodeKeeper> keeper;  ///< null for one that joins
    AgentKey agent = 0;                  ///< 0 until it has reported, and after it is lost
    int agent_pid = 0;
    std::string host;
    std::string address;
    std::vector<std::int32_t> cpus;  ///< ids, ascending, of those that its agent may use
    std::uint64_t arrival = 0;
    bool ready = false;
    bool welcome = false;  ///< ready, and nothing speaks against it
    bool over = false;
    bool suspended = false;
    std::chrono::steady_clock::time_point came_at{};  ///< the agent, at last
    bool dismissed = false;                           ///< until an agent takes its place
    bool is_awaited = false;  ///< start_node() starts its agent, which has not come and not failed
    std::string how;          ///< how it ended; empty once it is there again
    std::string refused;      ///< why its agent was turned away
  };

  /// An agent that has come when no place was free: a loss that makes one may just be found out.
  struct EarlyAgent {
    AgentKey key = 0;
    AgentReady hello;
    std::chrono::steady_clock::time_point came_at;
    Deadline until;  ///< then it is refused
  };

  /// True while its agent is linked, whatever is thought of it; mutex_ is held.
  static bool is_there(const Node& node) { return node.ready && !node.over && node.agent != 0; }
  /// False for a place that is for nodes which join later.
  bool is_for_the_start(std::size_t node) const { return !options_.nodes[node].joins_later; }
  bool is_settled(std::size_t node) const;  ///< mutex_ is held
  bool all_settled() const;
  /// The nodes for the start that are welcome; mutex_ is held.
  std::vector<std::string> welcome_nodes() const;
  std::size_t nodes_for_the_start() const;
  /// Nobody has the place any more; mutex_ is held.
  void vacate(std::size_t node);
  Result<void> listen();
  void start_keepers();
  void start_keeper(std::size_t index);
  /// The place for an agent that is to be started as the node of that name; mutex_ is held.
  Node* place_for(const std::string& name);
  /// Returns the place of an agent that introduces itself, or null; mutex_ is held.
  Node* place_of(const AgentReady& hello);
  std::string unused_name(const std::string& host) const;
  Result<void> has_come(const Node& node) const;
  Error not_all_joined() const;
  using Judge = std::function<NodeVerdict(const JoinedNode&)>;
  /// How often a Judge is called while verdicts are pending.
  static constexpr std::chrono::milliseconds judge_turn{10};
  /// Asks for verdicts on the nodes that have none; true if some are pending.
  bool judge_nodes(const Judge& judge);
  void refuse(const JoinedNode& node, const std::string& why);
  void note_refusal(std::string refusal);
  /// Gives a place to an agent; mutex_ is held.
  void seat(Node& node, AgentKey agent, const AgentReady& hello,
            std::chrono::steady_clock::time_point came_at);
  void seat_early_agents();
  void turn_away(AgentKey agent, const AgentReady& hello);
  /// Once all have come: judges nodes that take the place of lost ones, and refuses those that are
  /// too many.
  void receive_replacements(const std::stop_token& stop);
  void on_agent_message(AgentKey agent, ControlMessage message);
  void on_agent_ready(AgentKey agent, const AgentReady& hello);
  bool is_early(AgentKey agent, const AgentReady& hello);
  void on_agent_lost(AgentKey agent, const Error& why);
  void on_agent_refused(const std::string& node, const Error& why);
  void on_process_ended(std::size_t node, const std::string& how);
  /// The state for ClusterOptions::while_waiting; mutex_ is held.
  ClusterWait waiting();

  const ClusterOptions& options_;
  const LogPlaces logs_;
  const Events events_;
  std::atomic<bool> stopping_ = false;
  std::shared_mutex lifetime_;  ///< of control_, for those who use it without mutex_; taken last
  std::unique_ptr<ControlServer> control_;
  std::unique_ptr<InProcessNodes> in_process_;  ///< set once, before all else

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Node> nodes_;
  std::string last_refusal_;          ///< of an agent that wanted to join
  std::vector<std::string> refused_;  ///< see ClusterWait
  std::size_t refused_at_start_ = 0;  ///< the number of these when all had come
  std::vector<EarlyAgent> early_;     ///< bounded
  std::uint64_t arrivals_ = 0;
  bool all_came_ = false;
  bool is_suspended_ = false;
  std::mutex starts_mutex_;    ///< of start_lost(), start_node() and the end; taken first
  std::jthread replacements_;  ///< ends first
};

}  // namespace troupe
