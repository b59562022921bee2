#include "runtime/troupe/state_command.hpp"

#include <charconv>
#include <limits>

namespace troupe {
namespace {

constexpr std::string_view cluster_text =
    "which cluster, by its name, pid, HOST:PID or id as `status --json` tells it; may be left out "
    "if only one runs";
constexpr StateOption json{"--json", "", "", "JSON for programs, with everything that is known"};
constexpr StateOption limit{"--limit", "", "N", "only the first N actors (default 1000; 0: all)"};
constexpr StateOption folder{"--folder", "", "FOLDER",
                             "where the clusters' files are (default: troupe/clusters in "
                             "$XDG_STATE_HOME or ~/.local/state)"};

std::vector<StateCommandInfo> make_commands() {
  using Kind = StateCommand::Kind;
  return {
      {Kind::status,
       "status",
       "Lists your running clusters.",
       "CLUSTER",
       false,
       "only this one, by its name, pid, HOST:PID or id",
       {json,
        {"--clean", "", "",
         "remove the file of CLUSTER, of another host, which does not answer: whether its driver "
         "has ended can be seen on that host alone, where `status` removes such files by itself"},
        folder},
       R"(A cluster is a running program of yours that has called Cluster::start: a
launcher's job, or any other. It is found by a file in your home, so this works
on every host that has the same home, and reached as its nodes reach it: from
other hosts only if it runs on several.

Example:
  NAME     HOST  PID    UP         PROGRAM   NODES  ACTORS  GROUPS
  stories  c7    12345  2 h 5 min  launcher  4      9       1)"},
      {Kind::nodes,
       "nodes",
       "Lists the nodes of a cluster: hosts, whether they live, what is free.",
       "CLUSTER",
       false,
       cluster_text,
       {json, folder},
       R"(What is free is neither held by actors nor by bundles of placement groups. An
agent is the process that starts and watches the others of its node.)"},
      {Kind::actors,
       "actors",
       "Lists the actors of a cluster: where they are, how they ended.",
       "CLUSTER",
       false,
       cluster_text,
       {limit,
        {"--ended", "", "N", "tell of the last N that have ended (default 10, at most 4096)"},
        json,
        folder},
       R"(An actor is starting, alive or restarting: it has died, and is or will be
started again (SpawnOptions::max_restarts). QUEUED are its calls that wait or
run; CALLS/S those that it ended in the last quarter of a second. A process that
does not answer tells neither.)"},
      {Kind::groups,
       "groups",
       "Lists the placement groups of a cluster: bundles, nodes, what is reserved.",
       "CLUSTER",
       false,
       cluster_text,
       {json, folder},
       R"(A bundle's resources are reserved whether actors are in it or not; FREE is what
no actor in it holds.)"},
      {Kind::objects,
       "objects",
       "Lists the objects of a cluster: size, where they are, who has references.",
       "CLUSTER",
       false,
       cluster_text,
       {{"--limit", "", "N", "only the first N objects (default 1000; 0: all)"}, json, folder},
       R"(What put and tasks have made and somebody refers to. OWNER has put it: a
process, on NODE. WHERE: inside (small: bytes of the owner), memory (shared
with the processes of its host), spilled (a file), elsewhere (only other
processes have it), pending (not there yet), failed or lost. COPIES are
processes that hold it; more than one if other hosts have fetched it.
BORROWERS are processes beside the owner with references, PINS views of the
owner's copy that somebody reads: such a copy is neither freed nor spilled.)"},
      {Kind::logs,
       "logs",
       "Prints the logs of actors, nodes' agents or the driver.",
       "LOG",
       true,
       "'driver', a node, or an actor's name or id, also of one that has ended; left out: a list "
       "of all",
       {{"--follow", "-f", "", "go on as the log grows, until the cluster ends or Ctrl-C"},
        {"--lines", "-n", "N", "only the last N lines to begin with"},
        {"--cluster", "", "CLUSTER", cluster_text},
        limit,
        json,
        folder},
       R"(The driver reads them for you, so they may be on a disk of another host.
Processes of other hosts log to their agent's, which arrives at the driver.
Lines of several logs begin with their names. With --json each line is an object
with "log", "path" and "line". A log that is not there yet, is cut or is
replaced is followed all the same.

Examples:
  %s logs worker-0 -n 20 -f
  %s logs worker-0 worker-1 driver --cluster stories)"},
      {Kind::metrics,
       "metrics",
       "Prints the metrics of a cluster, of all its processes together.",
       "CLUSTER",
       false,
       cluster_text,
       {{"--listen", "", "PORT",
         "serve them at /metrics of this port for Prometheus, until the cluster ends or Ctrl-C; 0: "
         "any free port"},
        {"--address", "", "ADDRESS",
         "of --listen: numeric (default 127.0.0.1, which only this host reaches)"},
        folder},
       R"(In Prometheus' text format: what actors and the driver count themselves, and the
runtime's own, troupe_*: calls made, served and failed by class and method,
mailboxes, credits, bytes on links, actors, ends, restarts. Counts of processes
that have ended stay in the sums; gauges of all processes are added.

Examples:
  %s metrics stories | grep troupe_calls_failed_total
  %s metrics stories --listen 9100)"},
      {Kind::stack,
       "stack",
       "Prints where an actor's process is: the stacks of all its threads.",
       "ACTOR",
       false,
       "its name or id, as `actors` has them",
       {{"--cluster", "", "CLUSTER", cluster_text}, json, folder},
       R"(The process is not asked, so it may be busy, waiting or stopped. It stands still
while it is read, for some milliseconds. Its host needs eu-stack, of the package
elfutils. Compile with -g for the lines of functions that are not exported.

Example:
  %s stack worker-0)"},
      {Kind::timeline,
       "timeline",
       "Records the calls between actors for some seconds, as a trace to look at.",
       "CLUSTER",
       false,
       cluster_text,
       {{"--output", "-o", "FILE", "the trace (default trace.json)"},
        {"--seconds", "", "N", "record so long (default 5, at most 600)"},
        json,
        folder},
       R"(Open the file in https://ui.perfetto.dev or chrome://tracing. Each actor has a
row with the calls that it ran, and one with those that waited in its mailbox;
arrows go from where a call was made to where it ran. A process keeps its last
32,768 events; processes that start meanwhile are left out. Clocks of other
hosts are aligned by asking for their time.

Example:
  %s timeline stories --seconds 10 -o calls.json)"},
      {Kind::drain,
       "drain",
       "Lets a node of an elastic job go, whose requests go to the others.",
       "NODE",
       true,
       "the node, as `nodes` names it; before it which cluster, by its name, pid, HOST:PID or id "
       "as `status --json` tells it, which may be left out if only one runs",
       {json, folder},
       R"(The replicas on the node are dropped, or go to a spare node; what they had not
answered goes to the others with the tokens it has. Then the agent ends. That is
no loss: it does not count for `restart.max`, and the node is not started again,
but another agent may join in its place. A node without which no replica is left
is refused, and so is one of a job without `cluster.elastic`.

Example:
  %s drain stories gpu07)"},
      {Kind::join,
       "join",
       "Takes hosts into a running job, in place of lost or drained nodes or beside the others.",
       "CLUSTER",
       true,
       "which cluster, by its name, pid, HOST:PID or id as `status --json` tells it; behind it "
       "hosts as cluster.hosts has them",
       {{"--no-wait", "", "",
         "in an allocation of Slurm: end at once, and not when its nodes are let go"},
        json,
        folder},
       R"(With `cluster.launch: ssh` the launcher starts an agent on each host; without
hosts, on those of the nodes that were drained. With `slurm` it is to be run in
another allocation, on whose nodes the launcher then starts agents by srun; it
ends when the job has ended or its nodes are drained, and the allocation with
it. With `join` it says what is to be run on a node.

A node comes in place of one that is lost or drained, or as one of those that a
job with fewer nodes than replicas has places for. It is looked at as the others
were at the start.

Examples:
  %s join stories gpu09 me@gpu10:2222
  sbatch --nodes=2 --wrap '%s join stories')"},
      {Kind::stop,
       "stop",
       "Asks a cluster to end in order, and waits until it has.",
       "CLUSTER",
       false,
       cluster_text,
       {{"--wait", "", "SECONDS", "wait at most so long (default 60; 0: not at all)"},
        json,
        folder},
       R"(The driver's process gets a SIGTERM from itself. The launcher then begins no new
requests and finishes those that run (`job.grace_seconds`); a second stop ends
it at once. A program without a handler of its own ends at once. Agents and
actors end with their driver in any case. The exit status is 1 if it still runs.)"},
  };
}

Result<std::uint64_t> number_of(std::string_view option, std::string_view text,
                                std::uint64_t most) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number <= most) return number;
  return fail(ErrorCode::invalid_argument, "{} wants a whole number from 0 to {}, found '{}'",
              option, most, text);
}

}  // namespace

std::span<const StateCommandInfo> state_commands() {
  static const std::vector<StateCommandInfo> commands = make_commands();
  return commands;
}

Result<StateCommand> judge_state_command(const StateCommandInfo& info, const GivenState& given) {
  StateCommand command;
  command.kind = info.kind;
  if (!info.takes_several && given.words.size() > 1) {
    return fail(ErrorCode::invalid_argument, "unexpected argument {}", given.words[1]);
  }
  if (info.kind == StateCommand::Kind::drain) {
    if (given.words.empty() || given.words.size() > 2) {
      return fail(ErrorCode::invalid_argument, "which node? [CLUSTER] NODE, as `nodes` names it");
    }
    command.node = given.words.back();
    if (given.words.size() == 2) command.cluster = given.words.front();
  } else if (info.kind == StateCommand::Kind::join) {
    if (given.words.empty())
      return fail(ErrorCode::invalid_argument, "which cluster? CLUSTER [HOST]...");
    command.cluster = given.words.front();
    command.hosts.assign(given.words.begin() + 1, given.words.end());
  } else if (info.kind == StateCommand::Kind::stack) {
    if (given.words.empty()) {
      return fail(ErrorCode::invalid_argument, "whose stack? ACTOR, as `actors` names it");
    }
    command.actor = given.words.front();
  } else if (info.kind == StateCommand::Kind::logs) {
    command.logs = given.words;
  } else if (!given.words.empty()) {
    command.cluster = given.words.front();
  }
  for (const auto& [name, value] : given.options) {
    if (name == "--cluster") command.cluster = value;
    if (name == "--folder") command.folder = value;
    if (name == "--json") command.json = true;
    if (name == "--follow") command.follows = true;
    if (name == "--clean") command.cleans = true;
    if (name == "--no-wait") command.stays = false;
    if (name == "--lines") {
      TROUPE_TRY(command.lines, number_of(name, value, 1'000'000'000));
    }
    if (name == "--limit") {
      TROUPE_TRY(command.limit, number_of(name, value, 1'000'000'000));
    }
    if (name == "--ended") {
      TROUPE_TRY(const std::uint64_t ended, number_of(name, value, 4096));
      command.ended = static_cast<std::uint32_t>(ended);
    }
    if (name == "--listen") {
      TROUPE_TRY(const std::uint64_t port, number_of(name, value, 65535));
      command.listen = static_cast<std::uint16_t>(port);
    }
    if (name == "--address") command.address = value;
    if (name == "--output") command.output = value;
    if (name == "--seconds") {
      TROUPE_TRY(const std::uint64_t seconds, number_of(name, value, 600));
      command.seconds = std::chrono::seconds(seconds);
    }
    if (name == "--wait") {
      TROUPE_TRY(const std::uint64_t seconds, number_of(name, value, 86'400));
      command.wait = std::chrono::seconds(seconds);
    }
  }
  if (command.cleans && command.cluster.empty()) {
    return fail(ErrorCode::invalid_argument,
                "--clean removes the file of one cluster, which may still run: name it, by its "
                "name, pid, HOST:PID or id");
  }
  const bool has_log_options = command.follows || command.lines;
  if (command.logs.empty() && has_log_options) {
    return fail(ErrorCode::invalid_argument,
                "whose log? 'driver', a node or an actor; without one the logs are listed");
  }
  return command;
}

std::string state_details(const StateCommandInfo& info, std::string_view program) {
  std::string text(info.details);
  for (auto at = text.find("%s"); at != text.npos; at = text.find("%s", at)) {
    text.replace(at, 2, program);
  }
  return text;
}

}  // namespace troupe
