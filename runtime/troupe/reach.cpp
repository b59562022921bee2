#include "runtime/troupe/reach.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "runtime/base/terminal_text.hpp"
#include "runtime/link/local_address.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/troupe/text_table.hpp"

namespace troupe {
namespace {

bool is_meant(const ClusterFile& cluster, const std::string& word) {
  const std::string pid = std::to_string(cluster.driver.pid);
  return word.empty() || word == cluster.name || word == pid || word == cluster.id ||
         word == cluster.host + ":" + pid;
}

/// "`ssh c7 /opt/troupe/bin/troupe status`", which asks on the driver's machine.
std::string remedy(const ClusterFile& cluster) {
  const auto program = own_program();
  return fmt::format("`ssh {} {} status`", cluster.host, program.ok() ? *program : "troupe");
}

/// True if the host of the address, or a firewall in its name, has said that nothing listens there.
bool is_refused(const Error& error) {
  return error.message.ends_with(std::strerror(ECONNREFUSED));  // a link's error names the errno
}

/// What it means that a driver of another machine has this error, and what to do.
std::string explain(const ClusterFile& cluster, const Error& error) {
  const std::string address = fmt::format("{}:{}", cluster.address, cluster.port);
  const std::string look = remedy(cluster);
  if (is_loopback(cluster.address)) {
    return fmt::format("it runs on {} alone and listens on its loopback: ask there, e.g. {}",
                       cluster.host, look);
  }
  const std::string ended = fmt::format(
      "if it has ended, {} removes its file; if that host is gone for good, `status {}:{} --clean` "
      "does",
      look, cluster.host, cluster.driver.pid);
  if (error.code == ErrorCode::permission_denied) {
    return fmt::format("another program answers at {} ({}): {}", address, error.message, ended);
  }
  if (is_refused(error)) {
    return fmt::format(
        "nothing listens at {} ({}), or a firewall between here and there says so: {}", address,
        error.message, ended);
  }
  if (error.code == ErrorCode::timed_out) {
    return fmt::format(
        "{} is silent ({}): its driver is stopped, or this machine cannot reach it; look by {}",
        address, error.message, look);
  }
  return fmt::format("{} cannot be reached from here ({}): ask where it can, e.g. {}", address,
                     error.message, look);
}

/// Takes the error of a driver that does not answer, and says what it means.
void take_error(ReachedCluster& reached, Error error) {
  const ClusterFile& cluster = reached.found.file;
  if (reached.found.is_alive) {
    if (error.code == ErrorCode::timed_out) {
      error.message += "; its process is there, but stopped or too busy";
    }
  } else if (error.code != ErrorCode::unsupported) {  // which is of another version
    error.message = explain(cluster, error);
  }
  reached.status = std::move(error);
}

}  // namespace

Result<std::string> folder_of(const StateCommand& command) {
  return command.folder.empty() ? cluster_folder() : Result<std::string>(command.folder);
}

std::string describe(const ClusterFile& cluster) {
  return printable(
      fmt::format("{} (pid {} on {})", cluster.name, cluster.driver.pid, cluster.host));
}

Error several(const std::vector<ReachedCluster>& clusters, std::string_view verb) {
  std::string list;
  for (const auto& cluster : clusters) list += "\n  " + describe(cluster.found.file);
  return fail(ErrorCode::invalid_argument,
              "several clusters {}; name one by its name, pid or HOST:PID:{}", verb, list);
}

Result<ReachedClusters> reach_clusters(LinkLoop& loop, const StateCommand& command) {
  TROUPE_TRY(const std::string folder, folder_of(command));
  TROUPE_TRY(auto found, find_clusters(folder));
  for (const std::string& problem : found.problems) {
    std::fprintf(stderr, "passed over: %s\n", printable(problem).c_str());
  }
  ReachedClusters all{{}, std::move(found.ended)};
  auto& reached = all.clusters;
  std::vector<Future<StateReply>> answers;
  for (FoundCluster& cluster : found.clusters) {
    if (!is_meant(cluster.file, command.cluster)) continue;
    auto client = StateClient::begin(loop, cluster.file);
    answers.push_back(client.ok() ? (*client)->ask(AskStatus{})
                                  : Future<StateReply>(client.error()));
    reached.push_back(
        {std::move(cluster), client.ok() ? *std::move(client) : nullptr, StatusReply{}});
  }
  const auto until = std::chrono::steady_clock::now() + answer_limit;
  for (std::size_t i = 0; i < reached.size(); ++i) {
    auto reply = answers[i].get(
        std::max(until - std::chrono::steady_clock::now(), std::chrono::nanoseconds(0)));
    if (!reply.ok()) {
      take_error(reached[i], std::move(reply).error());
    } else if (auto* status = std::get_if<StatusReply>(&*reply)) {
      reached[i].status = std::move(*status);
    } else {
      reached[i].status = fail(ErrorCode::internal, "it gave another answer than was asked for");
    }
  }
  return all;
}

Result<ReachedCluster> reach_one(LinkLoop& loop, const StateCommand& command) {
  TROUPE_TRY(auto all, reach_clusters(loop, command));
  auto& reached = all.clusters;
  if (reached.size() > 1) {
    const auto answers = [](const ReachedCluster& cluster) { return cluster.status.ok(); };
    const auto first = std::ranges::find_if(reached, answers);
    // None is changed that is not named.
    const bool changes_it = command.kind == StateCommand::Kind::stop ||
                            command.kind == StateCommand::Kind::drain ||
                            command.kind == StateCommand::Kind::join;
    if (!changes_it && std::ranges::count_if(reached, answers) == 1) return std::move(*first);
    return several(reached, command.cluster.empty() ? "run" : "are meant");
  }
  if (reached.empty()) {
    TROUPE_TRY(const std::string folder, folder_of(command));
    return fail(ErrorCode::not_found, "no cluster of yours {} (looked in {})",
                command.cluster.empty() ? "runs" : "that runs is '" + command.cluster + "'",
                folder);
  }
  if (reached.front().status.ok()) return std::move(reached.front());
  const Error& error = reached.front().status.error();
  return Error{error.code, fmt::format("{} does not answer: {}",
                                       describe(reached.front().found.file), error.message)};
}

}  // namespace troupe
