#include "runtime/troupe/reach.hpp"

#include <algorithm>
#include <cstdio>

#include "runtime/link/local_address.hpp"
#include "runtime/troupe/text_table.hpp"

namespace troupe {
namespace {

bool is_meant(const ClusterFile& cluster, const std::string& word) {
  const std::string pid = std::to_string(cluster.driver.pid);
  return word.empty() || word == cluster.name || word == pid || word == cluster.id ||
         word == cluster.host + ":" + pid;
}

Result<std::string> folder_of(const StateCommand& command) {
  return command.folder.empty() ? cluster_folder() : Result<std::string>(command.folder);
}

/// Says more about a driver that listens where this machine cannot get to.
Error explain(const FoundCluster& cluster, Error error) {
  if (!cluster.is_alive && is_loopback(cluster.file.address)) {
    return fail(ErrorCode::peer_died,
                "it runs on {} alone and listens on its loopback: ask there, "
                "e.g. by `ssh {} troupe status`",
                cluster.file.host, cluster.file.host);
  }
  return error;
}

}  // namespace

std::string describe(const ClusterFile& cluster) {
  return printable(
      fmt::format("{} (pid {} on {})", cluster.name, cluster.driver.pid, cluster.host));
}

Result<std::vector<ReachedCluster>> reach_clusters(LinkLoop& loop, const StateCommand& command) {
  TROUPE_TRY(const std::string folder, folder_of(command));
  TROUPE_TRY(auto found, find_clusters(folder));
  for (const std::string& problem : found.problems) {
    std::fprintf(stderr, "passed over: %s\n", printable(problem).c_str());
  }
  std::vector<ReachedCluster> reached;
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
      reached[i].status = explain(reached[i].found, std::move(reply).error());
    } else if (auto* status = std::get_if<StatusReply>(&*reply)) {
      reached[i].status = std::move(*status);
    } else {
      reached[i].status = fail(ErrorCode::internal, "it gave another answer than was asked for");
    }
  }
  return reached;
}

Result<ReachedCluster> reach_one(LinkLoop& loop, const StateCommand& command) {
  TROUPE_TRY(auto reached, reach_clusters(loop, command));
  if (reached.size() > 1) {
    const auto answers = [](const ReachedCluster& cluster) { return cluster.status.ok(); };
    const auto first = std::ranges::find_if(reached, answers);
    if (std::ranges::count_if(reached, answers) == 1) return std::move(*first);
    std::string list;
    for (const auto& cluster : reached) list += "\n  " + describe(cluster.found.file);
    return fail(ErrorCode::invalid_argument,
                "several clusters {}; name one by its name, pid or HOST:PID:{}",
                command.cluster.empty() ? "run" : "are meant", list);
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
