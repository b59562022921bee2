#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/actor/actor_cell.hpp"
#include "runtime/control/messages.hpp"
#include "runtime/node/shared_regions.hpp"

namespace troupe {

/// The nodes of a cluster that is one process (ClusterOptions::in_process): takes what agents are
/// told, says what they say, and has the actors of their processes run on the threads of this one.
/// What ends a process ends its actors: a method that runs then goes on, but answers nobody.
/// Callable from any thread.
class InProcessNodes {
 public:
  using OnMessage = std::function<void(std::size_t node, ControlMessage message)>;
  /// `services`: the driver's, from which those of actors are made. `on_message` is called on one
  /// thread of this object.
  InProcessNodes(std::vector<std::string> nodes, std::shared_ptr<const HostServices> services,
                 OnMessage on_message);
  ~InProcessNodes();  ///< stops

  Result<void> start();
  void receive(std::size_t node, const ControlMessage& message);
  /// Ends all actors, waits at most `timeout` for their methods, and leaves those behind that take
  /// longer. No message follows. Idempotent.
  void stop(std::chrono::milliseconds timeout);

 private:
  /// What stands in for a process.
  struct Process {
    std::size_t node = 0;
    std::map<ActorId, std::shared_ptr<ActorCell>> cells{};
    std::shared_ptr<const HostServices> services{};
    std::shared_ptr<const ActorCell::Events> events{};  ///< of all its cells
    bool is_ending = false;
  };
  struct Order {
    std::size_t node = 0;
    ControlMessage message;
    bool is_event = false;  ///< of an actor, for the driver
    ProcessId process = 0;  ///< of an event
    bool ends_cell = false;
  };
  void run();
  void push(Order order);
  void handle(Order& order);
  void start_actor(std::size_t node, const StartActor& start);
  /// Has the driver told of an actor.
  using Tell = std::function<void(ControlMessage message, bool ends_cell)>;
  Tell teller(std::size_t node, ProcessId process) const;
  std::shared_ptr<const HostServices> services_of(std::size_t node, ProcessId process) const;
  void end_process(ProcessId id, bool kill);
  void note_ended(ProcessId id, std::size_t node, bool killed);

  const std::vector<std::string> nodes_;
  const std::shared_ptr<const HostServices> services_;
  const OnMessage on_message_;
  std::vector<std::shared_ptr<SharedRegions>> regions_;

  /// Outlives this object with the actors' events.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Order> orders;
    bool is_stopping = false;
  };
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::map<ProcessId, Process> processes_;  ///< of the thread; of stop() after its end
  std::thread thread_;
};

}  // namespace troupe
