#include <algorithm>
#include <chrono>
#include <cmath>

#include "runtime/base/terminal_text.hpp"
#include "runtime/troupe/answer.hpp"
#include "runtime/troupe/ask_pages.hpp"
#include "runtime/troupe/commands.hpp"

namespace troupe {
namespace {

/// Calls are counted for so long, for how many there are in a second.
constexpr std::chrono::milliseconds rate_time{250};

const char* name_of(NodeState::Life life) {
  switch (life) {
    case NodeState::Life::awaited:
      return "awaited";
    case NodeState::Life::alive:
      return "alive";
    case NodeState::Life::lost:
      return "lost";
    case NodeState::Life::drained:
      return "drained";
  }
  return "";
}

const char* name_of(ActorState::Life life) {
  switch (life) {
    case ActorState::Life::starting:
      return "starting";
    case ActorState::Life::alive:
      return "alive";
    case ActorState::Life::restarting:
      return "restarting";
  }
  return "";
}

std::string pid_cell(int pid) { return pid == 0 ? "" : std::to_string(pid); }

Columns<NodeState> node_columns() {
  using Row = NodeState;
  return {
      both<Row>("NAME", "name", &Row::name),
      both<Row>("HOST", "host", &Row::host),
      both<Row>("ADDRESS", "address", &Row::address),
      both<Row>("STATE", "state", [](const Row& node) { return name_of(node.life); }),
      in_table<Row>(
          "CPUS FREE",
          [](const Row& node) { return fmt::format("{} of {}", node.free.cpus, node.total.cpus); }),
      in_table<Row>("DEVICES FREE",
                    [](const Row& node) {
                      return fmt::format("{} of {}", node.free.devices, node.total.devices);
                    }),
      both<Row>("AGENT", "agent_pid", &Row::agent_pid,
                [](const Row& node) { return pid_cell(node.agent_pid); }),
      in_json<Row>("lost_because", &Row::lost_because),
      in_json<Row>("total", &Row::total),
      in_json<Row>("free", &Row::free),
      in_json<Row>("log_path", &Row::log_path),
  };
}

Columns<ActorState> actor_columns() {
  using Row = ActorState;
  return {
      both<Row>("ID", "id", &Row::id),
      both<Row>("NAME", "name", &Row::name),
      both<Row>("TYPE", "type", &Row::type),
      both<Row>("NODE", "node", &Row::node),
      both<Row>("PID", "pid", &Row::pid, [](const Row& actor) { return pid_cell(actor.pid); }),
      both<Row>("STATE", "state", [](const Row& actor) { return name_of(actor.life); }),
      both<Row>("RESTARTS", "restarts", &Row::restarts),
      both<Row>("DEVICES", "devices", &Row::devices),
      in_json<Row>("last_end", &Row::last_end),
      in_json<Row>("resources", &Row::resources),
      in_json<Row>("owner", &Row::owner),
      in_json<Row>("log_path", &Row::log_path),
  };
}

/// An actor and its calls; nothing is known of one whose process does not answer.
struct ActorRow {
  ActorState state;
  std::optional<std::uint64_t> queued, calls;
  std::optional<std::uint64_t> calls_per_second{};
};

Columns<ActorRow> loaded_actor_columns() {
  using Row = ActorRow;
  Columns<Row> columns = columns_of_part<Row>(actor_columns(), &Row::state);
  const auto after_state = columns.begin() + 6;
  columns.insert(after_state, {both<Row>("QUEUED", "queued", &Row::queued),
                               both<Row>("CALLS/S", "calls_per_second", &Row::calls_per_second),
                               in_json<Row>("calls", &Row::calls)});
  return columns;
}

/// Adds the loads to the actors; `before` are those of `seconds` ago.
std::vector<ActorRow> with_loads(const std::vector<ActorState>& actors,
                                 const std::vector<ActorLoadState>& before,
                                 const std::vector<ActorLoadState>& now, double seconds) {
  const auto of = [](const std::vector<ActorLoadState>& loads, std::uint64_t actor) {
    const auto found = std::ranges::lower_bound(loads, actor, {}, &ActorLoadState::actor);
    const bool is_there = found != loads.end() && found->actor == actor;
    return is_there ? std::optional(*found) : std::nullopt;
  };
  std::vector<ActorRow> rows;
  for (const ActorState& actor : actors) {
    ActorRow& row = rows.emplace_back(ActorRow{actor, {}, {}});
    const auto load = of(now, actor.id);
    if (!load) continue;
    row.queued = load->queued;
    row.calls = load->served;
    const auto earlier = of(before, actor.id);
    // Another incarnation counts from 0 again.
    if (!earlier || earlier->served > load->served) continue;
    const auto calls = static_cast<double>(load->served - earlier->served);
    row.calls_per_second = static_cast<std::uint64_t>(std::lround(calls / seconds));
  }
  return rows;
}

Columns<EndedActor> ended_columns() {
  using Row = EndedActor;
  return {
      in_json<Row>("id", &Row::id),
      in_json<Row>("name", &Row::name),
      in_json<Row>("type", &Row::type),
      in_json<Row>("node", &Row::node),
      in_json<Row>("pid", &Row::pid),
      in_json<Row>("restarts", &Row::restarts),
      in_json<Row>("ended", [](const Row& actor) { return iso_time(actor.ended_ms); }),
      in_json<Row>("cause", &Row::cause),
      in_json<Row>("code", &Row::code),
      in_json<Row>("message", &Row::message),
      in_json<Row>("log_path", &Row::log_path),
  };
}

/// A bundle of a placement group.
struct BundleRow {
  const PlacementGroup* group;
  std::size_t index;
  PlacementGroup::Bundle bundle;
  Resources free;
  std::uint64_t actors;
};

Columns<BundleRow> bundle_columns() {
  using Row = BundleRow;
  return {
      in_table<Row>("GROUP", [](const Row& row) { return row.group->name; }),
      in_table<Row>("STRATEGY", [](const Row& row) { return name_of(row.group->strategy); }),
      in_table<Row>("BUNDLE", &Row::index),
      both<Row>("NODE", "node", [](const Row& row) { return row.bundle.node; }),
      both<Row>("RESERVED", "resources", [](const Row& row) { return row.bundle.resources; }),
      both<Row>("FREE", "free", &Row::free),
      both<Row>("DEVICES", "devices", [](const Row& row) { return row.bundle.devices; }),
      both<Row>("ACTORS", "actors", &Row::actors),
      both<Row>(
          "STATE", "is_lost", [](const Row& row) { return row.bundle.is_lost; },
          [](const Row& row) { return row.bundle.is_lost ? "lost" : "held"; }),
  };
}

std::vector<BundleRow> bundles_of(const GroupState& state) {
  const auto& bundles = state.group.bundles;
  std::vector<BundleRow> rows;
  for (std::size_t i = 0; i < bundles.size(); ++i) {
    if (i >= state.free.size() || i >= state.actors.size()) break;
    rows.push_back({&state.group, i, bundles[i], state.free[i], state.actors[i]});
  }
  return rows;
}

Columns<GroupState> group_columns() {
  using Row = GroupState;
  return {
      in_json<Row>("id", [](const Row& state) { return state.group.id; }),
      in_json<Row>("name", [](const Row& state) { return state.group.name; }),
      in_json<Row>("strategy", [](const Row& state) { return name_of(state.group.strategy); }),
      in_json<Row>(
          "bundles",
          [](const Row& state) { return Json{json_list(bundle_columns(), bundles_of(state))}; }),
  };
}

}  // namespace

Result<int> show_nodes(const ReachedCluster& cluster, const StateCommand& command) {
  TROUPE_TRY(const auto nodes, ask_nodes(*cluster.client));
  if (command.json) {
    print_json(cluster.found.file, {{"nodes", json_list(node_columns(), nodes)}});
    return 0;
  }
  const std::size_t columns = terminal_columns();
  print(text_table(node_columns(), nodes).text(columns));
  for (const NodeState& node : nodes) {
    if (node.life != NodeState::Life::lost) continue;
    print(paragraph(fmt::format("{}: its agent {}", node.name, node.lost_because), columns));
  }
  return 0;
}

Result<int> show_actors(const ReachedCluster& cluster, const StateCommand& command) {
  using Clock = std::chrono::steady_clock;
  const auto ask_loads = [&] { return cluster.client->get<LoadsReply>(AskLoads{}, answer_limit); };
  TROUPE_TRY(const auto before, ask_loads());
  const auto since = Clock::now();
  TROUPE_TRY(const auto reply, ask_actors(*cluster.client, command.limit, command.ended));
  (void)cluster.client->wait_until_closed(
      std::max(std::chrono::milliseconds(0),
               std::chrono::ceil<std::chrono::milliseconds>(since + rate_time - Clock::now())));
  TROUPE_TRY(const auto now, ask_loads());
  const std::chrono::duration<double> time = Clock::now() - since;
  const auto rows = with_loads(reply.actors, before.actors, now.actors, time.count());
  if (command.json) {
    print_json(cluster.found.file, {{"actors", json_list(loaded_actor_columns(), rows)},
                                    {"actors_left_out", json_of(reply.left_out)},
                                    {"ended", json_list(ended_columns(), reply.ended)}});
    return 0;
  }
  const std::size_t columns = terminal_columns();
  print(text_table(loaded_actor_columns(), rows).text(columns));
  if (reply.left_out > 0) print(left_out_note(reply, columns));
  for (const ActorState& actor : reply.actors) {
    if (actor.life != ActorState::Life::restarting) continue;
    print(paragraph("restarting: " + actor.last_end, columns, 2));
  }
  for (const EndedActor& actor : reply.ended) {
    print(paragraph(fmt::format("{} ago: {}", age(actor.ended_ms), actor.message), columns, 2));
  }
  return 0;
}

Result<int> show_groups(const ReachedCluster& cluster, const StateCommand& command) {
  TROUPE_TRY(const auto groups, ask_groups(*cluster.client));
  if (command.json) {
    print_json(cluster.found.file, {{"placement_groups", json_list(group_columns(), groups)}});
    return 0;
  }
  std::vector<BundleRow> rows;
  for (const GroupState& group : groups) {
    const auto bundles = bundles_of(group);
    rows.insert(rows.end(), bundles.begin(), bundles.end());
  }
  print(text_table(bundle_columns(), rows).text(terminal_columns()));
  return 0;
}

}  // namespace troupe
