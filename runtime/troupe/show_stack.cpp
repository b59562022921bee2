#include <chrono>

#include "runtime/base/terminal_text.hpp"
#include "runtime/troupe/answer.hpp"
#include "runtime/troupe/commands.hpp"

namespace troupe {
namespace {

/// A large program's symbols take their time.
constexpr std::chrono::milliseconds stack_limit{8000};

}  // namespace

Result<int> show_stack(const ReachedCluster& cluster, const StateCommand& command) {
  TROUPE_TRY(const auto reply,
             cluster.client->get<StackReply>(AskStack{command.actor}, stack_limit));
  if (command.json) {
    print_json(cluster.found.file, {{"actor", json_of(reply.actor)},
                                    {"process", json_of(reply.process)},
                                    {"node", json_of(reply.node)},
                                    {"pid", json_of(reply.pid)},
                                    {"stack", json_of(reply.text)}});
    return 0;
  }
  print(printable(fmt::format("actor {}: process {} (pid {}) on {}", reply.actor, reply.process,
                              reply.pid, reply.node)) +
        "\n" + reply.text);
  return 0;
}

}  // namespace troupe
