#include "runtime/troupe/run_state_command.hpp"

#include <cstdio>
#include <ctime>
#include <filesystem>

#include <unistd.h>

#include "runtime/troupe/json_text.hpp"
#include "runtime/troupe/print_log.hpp"
#include "runtime/troupe/reach.hpp"
#include "runtime/troupe/text_table.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

std::int64_t now_ms() {
  return std::chrono::duration_cast<milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// "42 s", "5 min", "2 h 5 min", "3 d 4 h".
std::string age(std::int64_t since_ms) {
  const std::int64_t seconds = std::max<std::int64_t>(now_ms() - since_ms, 0) / 1000;
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 86400) return fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
  return fmt::format("{} d {} h", seconds / 86400, seconds / 3600 % 24);
}

/// ISO 8601, UTC.
std::string iso_time(std::int64_t ms) {
  const std::time_t seconds = ms / 1000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

JsonObject cluster_json(const ClusterFile& cluster) {
  JsonObject json;
  json.add("name", cluster.name)
      .add("id", cluster.id)
      .add("host", cluster.host)
      .add("pid", cluster.driver.pid)
      .add("program", cluster.program)
      .add("since", iso_time(cluster.since_ms))
      .add("address", cluster.address)
      .add("port", cluster.port);
  return json;
}

std::string resources_json(const Resources& resources) {
  JsonObject custom;
  for (const auto& [name, amount] : resources.custom) custom.add(name, amount);
  return JsonObject()
      .add("cpus", resources.cpus)
      .add("devices", resources.devices)
      .add("memory_bytes", resources.memory_bytes)
      .add_json("custom", custom.text())
      .text();
}

std::string numbers_json(std::span<const int> numbers) {
  std::vector<std::string> texts;
  for (const int number : numbers) texts.push_back(std::to_string(number));
  return json_array(texts);
}

std::string ids(std::span<const int> numbers) {
  if (numbers.empty()) return "-";
  return fmt::format("{}", fmt::join(numbers, ","));
}

void print_answer(const ClusterFile& cluster, std::string_view what,
                  std::span<const std::string> values) {
  print(JsonObject()
            .add_json("cluster", cluster_json(cluster).text())
            .add_json(what, json_array(values))
            .text() +
        "\n");
}

Result<int> show_status(LinkLoop& loop, const StateCommand& command) {
  TROUPE_TRY(const auto clusters, reach_clusters(loop, command));
  TextTable table({"NAME", "HOST", "PID", "UP", "NODES", "ACTORS", "GROUPS", "PROGRAM"});
  std::vector<std::string> values;
  std::string notes;
  const std::size_t columns = terminal_columns();
  for (const auto& [found, client, status] : clusters) {
    const ClusterFile& file = found.file;
    JsonObject json = cluster_json(file);
    json.add_json("answers", status.ok() ? "true" : "false");
    std::vector<std::string> row{file.name, file.host, std::to_string(file.driver.pid),
                                 age(file.since_ms)};
    if (status.ok()) {
      const auto nodes = status->nodes_alive + status->nodes_lost + status->nodes_awaited;
      json.add("nodes_alive", status->nodes_alive)
          .add("nodes_lost", status->nodes_lost)
          .add("nodes_awaited", status->nodes_awaited)
          .add("actors", status->actors)
          .add("actors_restarting", status->actors_restarting)
          .add("placement_groups", status->placement_groups)
          .add("job_folder", status->job_folder)
          .add("log_folder", status->log_folder);
      row.push_back(nodes == status->nodes_alive
                        ? std::to_string(nodes)
                        : fmt::format("{} of {}", status->nodes_alive, nodes));
      row.push_back(fmt::format("{}", status->actors));
      row.push_back(fmt::format("{}", status->placement_groups));
    } else {
      json.add("why", status.error().message);
      row.insert(row.end(), {"-", "-", "-"});
      const bool goes = command.cleans && !found.is_alive && ::unlink(found.path.c_str()) == 0;
      notes += paragraph(fmt::format("{} does not answer: {}{}", describe(file),
                                     status.error().message, goes ? "; its file is removed" : ""),
                         columns);
    }
    row.push_back(std::filesystem::path(file.program).filename().string());
    table.add(std::move(row));
    values.push_back(json.text());
  }
  if (command.json) {
    print(JsonObject().add_json("clusters", json_array(values)).text() + "\n");
    return 0;
  }
  if (clusters.empty()) {
    const auto folder = command.folder.empty() ? cluster_folder() : command.folder;
    TROUPE_CHECK(folder.ok() ? Result<void>() : folder.error());
    print(paragraph(fmt::format("no cluster of yours runs (looked in {})", *folder), columns));
    return 0;
  }
  print(table.text(columns));
  std::fputs(notes.c_str(), stderr);
  return 0;
}

const char* to_text(NodeState::Life life) {
  switch (life) {
    case NodeState::Life::awaited:
      return "awaited";
    case NodeState::Life::alive:
      return "alive";
    case NodeState::Life::lost:
      return "lost";
  }
  return "";
}

const char* to_text(ActorState::Life life) {
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

Result<int> show_nodes(const ReachedCluster& cluster, const StateCommand& command) {
  TROUPE_TRY(const auto reply, cluster.client->get<NodesReply>(AskNodes{}, answer_limit));
  TextTable table({"NAME", "HOST", "ADDRESS", "STATE", "CPUS FREE", "DEVICES FREE", "AGENT"});
  std::vector<std::string> values;
  std::string notes;
  const std::size_t columns = terminal_columns();
  for (const NodeState& node : reply.nodes) {
    table.add({node.name, node.host, node.address, to_text(node.life),
               fmt::format("{} of {}", node.free.cpus, node.total.cpus),
               fmt::format("{} of {}", node.free.devices, node.total.devices),
               node.agent_pid == 0 ? "-" : std::to_string(node.agent_pid)});
    values.push_back(JsonObject()
                         .add("name", node.name)
                         .add("host", node.host)
                         .add("address", node.address)
                         .add("state", to_text(node.life))
                         .add("lost_because", node.lost_because)
                         .add("agent_pid", node.agent_pid)
                         .add_json("total", resources_json(node.total))
                         .add_json("free", resources_json(node.free))
                         .add("log_path", node.log_path)
                         .text());
    if (node.life == NodeState::Life::lost) {
      notes += paragraph(fmt::format("{}: its agent {}", node.name, node.lost_because), columns);
    }
  }
  if (command.json) return print_answer(cluster.found.file, "nodes", values), 0;
  print(table.text(columns) + notes);
  return 0;
}

std::string actor_json(const ActorState& actor) {
  return JsonObject()
      .add("id", actor.id)
      .add("name", actor.name)
      .add("type", actor.type)
      .add("node", actor.node)
      .add("pid", actor.pid)
      .add("state", to_text(actor.life))
      .add("restarts", actor.restarts)
      .add("last_end", actor.last_end)
      .add_json("devices", numbers_json(actor.devices))
      .add_json("resources", resources_json(actor.resources))
      .add("owner", actor.owner)
      .add("log_path", actor.log_path)
      .text();
}

std::string ended_json(const EndedActor& actor) {
  return JsonObject()
      .add("id", actor.id)
      .add("name", actor.name)
      .add("type", actor.type)
      .add("node", actor.node)
      .add("pid", actor.pid)
      .add("restarts", actor.restarts)
      .add("ended", iso_time(actor.ended_ms))
      .add("cause", actor.cause)
      .add("code", actor.code)
      .add("message", actor.message)
      .add("log_path", actor.log_path)
      .text();
}

Result<int> show_actors(const ReachedCluster& cluster, const StateCommand& command) {
  TROUPE_TRY(const auto reply,
             cluster.client->get<ActorsReply>(AskActors{command.ended}, answer_limit));
  if (command.json) {
    std::vector<std::string> actors, ended;
    for (const auto& actor : reply.actors) actors.push_back(actor_json(actor));
    for (const auto& actor : reply.ended) ended.push_back(ended_json(actor));
    print(JsonObject()
              .add_json("cluster", cluster_json(cluster.found.file).text())
              .add_json("actors", json_array(actors))
              .add_json("ended", json_array(ended))
              .text() +
          "\n");
    return 0;
  }
  const std::size_t columns = terminal_columns();
  TextTable table({"ID", "NAME", "TYPE", "NODE", "PID", "STATE", "RESTARTS", "DEVICES"});
  std::string notes;
  for (const ActorState& actor : reply.actors) {
    table.add({std::to_string(actor.id), actor.name, actor.type,
               actor.node.empty() ? "-" : actor.node,
               actor.pid == 0 ? "-" : std::to_string(actor.pid), to_text(actor.life),
               std::to_string(actor.restarts), ids(actor.devices)});
    if (actor.life == ActorState::Life::restarting) {
      notes += paragraph("restarting: " + actor.last_end, columns, 2);
    }
  }
  for (const EndedActor& actor : reply.ended) {
    notes += paragraph(fmt::format("{} ago: {}", age(actor.ended_ms), actor.message), columns, 2);
  }
  print(table.text(columns) + notes);
  return 0;
}

Result<int> show_groups(const ReachedCluster& cluster, const StateCommand& command) {
  TROUPE_TRY(const auto reply, cluster.client->get<GroupsReply>(AskGroups{}, answer_limit));
  TextTable table({"GROUP", "STRATEGY", "BUNDLE", "NODE", "RESERVED", "FREE", "DEVICES", "STATE"});
  std::vector<std::string> values;
  for (const auto& [group, free, actors] : reply.groups) {
    std::vector<std::string> bundles;
    for (std::size_t i = 0; i < group.bundles.size() && i < free.size() && i < actors.size(); ++i) {
      const auto& bundle = group.bundles[i];
      table.add({group.name, name_of(group.strategy), std::to_string(i), bundle.node,
                 bundle.resources.describe(), free[i].describe(), ids(bundle.devices),
                 bundle.is_lost ? "lost" : "held"});
      bundles.push_back(JsonObject()
                            .add("node", bundle.node)
                            .add_json("resources", resources_json(bundle.resources))
                            .add_json("free", resources_json(free[i]))
                            .add_json("devices", numbers_json(bundle.devices))
                            .add("actors", actors[i])
                            .add_json("is_lost", bundle.is_lost ? "true" : "false")
                            .text());
    }
    values.push_back(JsonObject()
                         .add("id", group.id)
                         .add("name", group.name)
                         .add("strategy", name_of(group.strategy))
                         .add_json("bundles", json_array(bundles))
                         .text());
  }
  if (command.json) return print_answer(cluster.found.file, "placement_groups", values), 0;
  print(table.text(terminal_columns()));
  return 0;
}

std::string own_description() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return fmt::format("process {} of uid {} on {}", ::getpid(), ::geteuid(), host);
}

Result<int> stop_cluster(const ReachedCluster& cluster, const StateCommand& command) {
  const ClusterFile& file = cluster.found.file;
  const std::string who = describe(file);
  if (cluster.status->at_sigterm == StatusReply::AtSigterm::ignores) {
    return fail(ErrorCode::unsupported,
                "the program of {} ignores SIGTERM; end it in its own way, or by kill -9 {} on {}",
                who, file.driver.pid, file.host);
  }
  const auto taken = cluster.client->get<StopReply>(AskStop{own_description()}, answer_limit);
  // A program that dies of the signal closes the link without an answer.
  if (!taken.ok() && taken.error().code != ErrorCode::peer_died) return taken.error();
  const auto until = std::chrono::steady_clock::now() + command.wait;
  bool ended = cluster.client->wait_until_closed(command.wait);
  if (ended && cluster.found.is_alive) {
    const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
    ended = wait_for_end(file.driver, std::max(left, milliseconds(0)));
  }
  if (command.json) {
    print(JsonObject()
              .add_json("cluster", cluster_json(file).text())
              .add_json("ended", ended ? "true" : "false")
              .text() +
          "\n");
  } else if (ended) {
    print(who + " has ended\n");
  } else {
    print(paragraph(
        fmt::format("{} is asked to end, and still runs{}", who,
                    command.wait.count() == 0
                        ? std::string()
                        : fmt::format(" after {} s; its log may say why", command.wait.count())),
        terminal_columns()));
  }
  return ended || command.wait.count() == 0 ? 0 : 1;
}

}  // namespace

Result<int> run_state_command(const StateCommand& command) {
  TROUPE_TRY(const auto loop, LinkLoop::start());
  if (command.kind == StateCommand::Kind::status) return show_status(*loop, command);
  TROUPE_TRY(const auto cluster, reach_one(*loop, command));
  switch (command.kind) {
    case StateCommand::Kind::nodes:
      return show_nodes(cluster, command);
    case StateCommand::Kind::actors:
      return show_actors(cluster, command);
    case StateCommand::Kind::groups:
      return show_groups(cluster, command);
    case StateCommand::Kind::logs:
      return print_log(cluster, command);
    case StateCommand::Kind::stop:
      return stop_cluster(cluster, command);
    case StateCommand::Kind::status:
      break;
  }
  return 0;
}

}  // namespace troupe
