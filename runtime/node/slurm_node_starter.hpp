#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/node/node_starter.hpp"

namespace troupe {

/// Starts agents on the nodes of the Slurm allocation that this process runs in, by one `srun` step
/// for each, and on those of other allocations of this user (`srun --jobid`). Nodes are named as
/// Slurm names them.
///
/// srun carries stdin over the network in clear, so the ticket goes as a MUNGE credential, which
/// only this user can decode, on a host of this cluster.
class SlurmNodeStarter final : public NodeStarter {
 public:
  /// The node is one of that allocation from now on; empty: of this process's own. Callable from
  /// any thread.
  void set_job(const std::string& node, std::string job);
  Result<std::unique_ptr<NodeProcess>> start(const NodeTicket& ticket,
                                             const std::string& log_path) override;
  bool is_local() const override { return false; }

 private:
  std::string job_of(const std::string& node) const;

  mutable std::mutex mutex_;                 ///< of jobs_
  std::map<std::string, std::string> jobs_;  ///< by node
};

/// The allocation that this process runs in: its job number; empty outside of one.
std::string slurm_job();

/// The nodes of the allocation, in Slurm's order. Errors: not_found outside of an allocation, or
/// without Slurm's programs.
Result<std::vector<std::string>> slurm_nodes();

/// The host from which the job that this process runs in was submitted, say a login node, if that
/// is another one. Errors: not_found.
Result<std::string> slurm_login_host();

}  // namespace troupe
