#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/process/process_mark.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

/// Says where a running cluster can be asked (StateServer), and by which key: a file of its user in
/// cluster_folder(), which only that user can read. The driver writes it and removes it; what a
/// killed driver leaves is removed by the next cluster of that host and by whoever looks.
struct ClusterFile {
  std::uint32_t protocol = 0;  ///< state_protocol of the driver
  std::string name;            ///< for people; ClusterOptions::name
  std::string id;              ///< of the job: letters and digits, never used again
  std::string program = {};    ///< the path of the driver's program
  std::string host = {};       ///< the machine's name
  ProcessMark driver = {};
  std::int64_t since_ms = 0;  ///< the cluster's start, since 1970
  std::string address = {};   ///< numeric, where the driver listens
  std::uint16_t port = 0;
  SecretKey key = {};  ///< an observer's: it opens nothing else

  /// Lines of "WORD VALUE". Control characters in a value become '?'.
  std::string text() const;
  /// Reads text(). Lines with an unknown word are passed over. Errors: corrupt_data.
  static Result<ClusterFile> parse(std::string_view text);
  /// "HOST-PID-ID": a name in the folder that no other cluster has.
  std::string file_name() const;
};

/// Where this user's cluster files are: troupe/clusters in $XDG_STATE_HOME or ~/.local/state.
/// not_found if there is no home.
Result<std::string> cluster_folder();

/// A cluster file that is there as long as this object. Not synchronised.
class PublishedCluster {
 public:
  /// Writes the file, mode 0600, as a whole or not at all. The folder is made with mode 0700 if it
  /// is not there, and files of clusters that have ended on this machine are removed from it.
  /// Errors: io; permission_denied for a folder of another user.
  static Result<PublishedCluster> publish(const std::string& folder, const ClusterFile& file);

  PublishedCluster(PublishedCluster&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  PublishedCluster& operator=(PublishedCluster&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~PublishedCluster();

  const std::string& path() const { return path_; }

 private:
  explicit PublishedCluster(std::string path) : path_(std::move(path)) {}

  std::string path_;  ///< empty: none
};

/// A cluster that may be running.
struct FoundCluster {
  std::string path;  ///< of its file
  ClusterFile file;
  bool is_alive = false;  ///< its driver runs on this machine; false elsewhere: unknown
};

struct FoundClusters {
  std::vector<FoundCluster> clusters;  ///< the oldest first
  std::vector<ClusterFile> ended;      ///< without removing their files, which is now done
  std::vector<std::string> problems;   ///< a sentence for each file that cannot be used
};

/// Reads the files in the folder, and removes those of clusters that have ended on this machine, in
/// this boot or an earlier one. No folder is no clusters. Errors: io; permission_denied for a
/// folder that others can write.
Result<FoundClusters> find_clusters(const std::string& folder);

}  // namespace troupe
