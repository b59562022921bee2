#include "runtime/node/node_starter.hpp"
#include "runtime/node/started_node.hpp"

namespace troupe {

Result<std::unique_ptr<NodeProcess>> LocalNodeStarter::start(const NodeTicket& ticket,
                                                             const std::string& log_path) {
  return StartedNode::start(
      ticket.text(),
      {.arguments = {"troupe: agent of " + ticket.node, agent_flag}, .output_path = log_path});
}

}  // namespace troupe
