#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "runtime/actor/actor_process.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/actor/cluster_impl.hpp"
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

std::atomic<bool> was_initialised = false;

}  // namespace

const ActorTypes& ActorTypes::registered() { return types_of_init(); }

void init(int argc, char** argv, const ActorTypes& types) {
  was_initialised = true;
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
  TROUPE_TRY(const auto* registered, actor_detail::find_class(type));
  if (registered != nullptr) return ActorFactory(registered->make);
  return fail(
      ErrorCode::not_found,
      "this program has no actor type '{0}': put TROUPE_ACTOR({0}) behind the class, or give "
      "it to troupe::init in ActorTypes",
      type);
}

Result<void> check_program() {
  if (!was_initialised) {
    return fail(ErrorCode::invalid_argument,
                "troupe::init(argc, argv) has not been called: it must come first in main, because "
                "agents and actor processes are this same program executed again");
  }
  return actor_detail::check_classes();
}

}  // namespace troupe
