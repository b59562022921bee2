#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <unistd.h>

#include "runtime/actor/actor_process.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/actor/task_worker_actor.hpp"
#include "runtime/node/agent.hpp"
#include "runtime/node/node_starter.hpp"
#include "runtime/process/open_files.hpp"
#include "runtime/security/handshake.hpp"

namespace troupe {
namespace {

/// Written once, in main before other threads.
ActorTypes& types_of_init() {
  static ActorTypes types;
  return types;
}

}  // namespace

const ActorTypes& ActorTypes::registered() { return types_of_init(); }

void init(int argc, char** argv, const ActorTypes& types) {
  raise_open_file_limit();
  types_of_init() = types;
  if (argc < 2) return;
  const std::string_view role = argv[1];
  constexpr int parent_fd = 3;
  if (role == agent_flag) std::exit(run_agent());
  if (role == build_flag) {
    std::puts(to_hex(this_build()).c_str());
    std::exit(0);
  }
  if (role == "--troupe-process=actor") run_actor_process(UniqueFd(parent_fd), types);
}

Result<ActorFactory> ActorTypes::find(const std::string& type) const {
  if (type == TaskWorkerActor::actor_type) {  // every program can run tasks
    return ActorFactory(actor_detail::make_from_bytes<TaskWorkerActor>);
  }
  const auto found = factories_.find(type);
  if (found != factories_.end()) return found->second;
  return fail(ErrorCode::not_found,
              "this program has no actor type '{}': add it to the ActorTypes given to troupe::init",
              type);
}

}  // namespace troupe
