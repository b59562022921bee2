#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_types.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Breaks its own node, for `launcher bench faults`: an actor with a process of its own, so that
/// faults get to a node whichever way its agent was started. It touches only its agent and the
/// processes that this has started.
class Saboteur {
 public:
  explicit Saboteur(ActorContext& context) : context_(context) {}

  /// Sends a signal to a process that the agent has started. Errors: not_found if it has not.
  Result<void> signal(int pid, int signal_number);
  /// Stops the thread that takes a worker's steps, while the process's others go on, until the
  /// process is killed. Errors: not_found if the agent has not started it, or it serves no steps;
  /// permission_denied; timeout if nobody kills it.
  Result<void> hang(int pid);
  /// Why hang cannot be done to that worker: unsupported, with what is missing. The worker's step
  /// stops for some microseconds.
  Result<void> check_hang(int pid);
  /// Kills the agent, with which this process ends, too. Returns only errors.
  Result<void> kill_agent();
  /// Kills the agent and all of its processes at once: the agent is stopped first, so that it
  /// cannot tell what ends. Returns only errors.
  Result<void> kill_node();
  /// Stops the agent and all of its processes, this one last. A process of its own lets them go on
  /// after `seconds`, and ends. Returns only errors.
  Result<void> freeze_node(double seconds);
  /// Why cut_link cannot be done here: unsupported, with what is missing.
  Result<void> check_link(const std::string& device);
  /// Takes a network device down. A process of its own takes it up again after `seconds`, gives it
  /// the IPv4 routes back that it had, and ends.
  Result<void> cut_link(const std::string& device, double seconds);
  /// Resident memory of the agent, in bytes.
  Result<std::uint64_t> agent_memory();
  /// Ends this actor.
  void leave() { context_.exit("it is not needed any more"); }

  static constexpr std::string_view actor_type = "Saboteur";
  using Methods = troupe::Methods<&Saboteur::signal, &Saboteur::hang, &Saboteur::check_hang,
                                  &Saboteur::kill_agent, &Saboteur::kill_node,
                                  &Saboteur::freeze_node, &Saboteur::check_link,
                                  &Saboteur::cut_link, &Saboteur::agent_memory, &Saboteur::leave>;

 private:
  ActorContext& context_;
};

void add_fault_actors(ActorTypes& types);

}  // namespace troupe
