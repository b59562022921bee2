#include <chrono>

#include "runtime/base/terminal_text.hpp"
#include "runtime/troupe/answer.hpp"
#include "runtime/troupe/commands.hpp"

namespace troupe {
namespace {

/// Waits at most `limit` until the driver has closed the link and, where that can be seen, ended.
bool wait_for_end(const ReachedCluster& cluster, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  if (!cluster.client->wait_until_closed(limit)) return false;
  if (!cluster.found.is_alive) return true;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  return wait_for_end(cluster.found.file.driver, std::max(left, std::chrono::milliseconds(0)));
}

}  // namespace

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
  const bool waits = command.wait.count() > 0;
  const bool has_ended = wait_for_end(cluster, command.wait);
  if (command.json) {
    print_json(file, {{"ended", json_of(has_ended)}});
  } else if (has_ended) {
    print(who + " has ended\n");
  } else {
    const std::string after =
        waits ? fmt::format(" after {} s; its log may say why", command.wait.count()) : "";
    print(paragraph(fmt::format("{} is asked to end, and still runs{}", who, after),
                    terminal_columns()));
  }
  return has_ended || !waits ? 0 : 1;
}

}  // namespace troupe
