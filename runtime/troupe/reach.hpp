#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/state/state_client.hpp"
#include "runtime/troupe/state_command.hpp"

namespace troupe {

/// How long a driver may take to answer.
inline constexpr std::chrono::milliseconds answer_limit{5000};

/// How long its handshake may take: clearly less, so that a silent driver always gets the same
/// reason.
inline constexpr std::chrono::milliseconds handshake_limit = answer_limit * 4 / 5;

/// A cluster and how it answered.
struct ReachedCluster {
  FoundCluster found;
  std::unique_ptr<StateClient> client;  ///< null if it cannot be reached at all
  Result<StatusReply> status = StatusReply{};
};

struct ReachedClusters {
  std::vector<ReachedCluster> clusters;
  std::vector<ClusterFile> ended;  ///< FoundClusters::ended
};

/// The folder of the cluster files. Errors: cluster_folder().
Result<std::string> folder_of(const StateCommand& command);

/// Asks all clusters that the command may mean for their status, at once. Problems with files go to
/// stderr. Errors: io, not_found, permission_denied of the folder.
Result<ReachedClusters> reach_clusters(LinkLoop& loop, const StateCommand& command);

/// The one cluster that the command means: the only one, or, but for `stop`, `drain` and `join`,
/// the only one that answers. Errors: not_found says where was looked; invalid_argument lists
/// several; the reason why it does not answer.
Result<ReachedCluster> reach_one(LinkLoop& loop, const StateCommand& command);

/// "several clusters are meant; ..." with a list of them; invalid_argument.
Error several(const std::vector<ReachedCluster>& clusters, std::string_view verb);

/// "stories (pid 7 on c7)".
std::string describe(const ClusterFile& cluster);

}  // namespace troupe
