#include "runtime/troupe/run_state_command.hpp"

#include "runtime/troupe/commands.hpp"

namespace troupe {

Result<int> run_state_command(const StateCommand& command) {
  TROUPE_TRY(const auto loop, LinkLoop::start({.handshake_timeout = handshake_limit}));
  if (command.kind == StateCommand::Kind::status) return show_status(*loop, command);
  TROUPE_TRY(const auto cluster, reach_one(*loop, command));
  switch (command.kind) {
    case StateCommand::Kind::nodes:
      return show_nodes(cluster, command);
    case StateCommand::Kind::actors:
      return show_actors(cluster, command);
    case StateCommand::Kind::groups:
      return show_groups(cluster, command);
    case StateCommand::Kind::objects:
      return show_objects(cluster, command);
    case StateCommand::Kind::logs:
      return print_log(cluster, command);
    case StateCommand::Kind::metrics:
      return show_metrics(cluster, command);
    case StateCommand::Kind::stack:
      return show_stack(cluster, command);
    case StateCommand::Kind::timeline:
      return record_timeline(cluster, command);
    case StateCommand::Kind::drain:
      return drain_node(cluster, command);
    case StateCommand::Kind::join:
      return join_hosts(cluster, command);
    case StateCommand::Kind::stop:
      return stop_cluster(cluster, command);
    case StateCommand::Kind::status:
      break;
  }
  return 0;
}

}  // namespace troupe
