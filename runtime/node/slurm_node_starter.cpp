#include "runtime/node/slurm_node_starter.hpp"

#include <cstdlib>
#include <sstream>

#include <unistd.h>

#include "runtime/base/host_name.hpp"
#include "runtime/node/started_node.hpp"
#include "runtime/process/run_program.hpp"

namespace troupe {
namespace {

constexpr auto program_timeout = std::chrono::seconds(10);

}  // namespace

void SlurmNodeStarter::set_job(const std::string& node, std::string job) {
  const std::lock_guard lock(mutex_);
  jobs_[node] = std::move(job);
}

std::string SlurmNodeStarter::job_of(const std::string& node) const {
  const std::lock_guard lock(mutex_);
  const auto job = jobs_.find(node);
  return job == jobs_.end() ? "" : job->second;
}

Result<std::unique_ptr<NodeProcess>> SlurmNodeStarter::start(const NodeTicket& ticket,
                                                             const std::string& log_path) {
  TROUPE_TRY(const std::string program, own_program());
  TROUPE_TRY(const std::string credential,
             run_program({"munge", fmt::format("--restrict-uid={}", ::geteuid())}, ticket.text(),
                         program_timeout));
  // The step has all of the allocation's cpus and memory on the node; other steps of the job may
  // share them.
  std::vector<std::string> arguments{
      "srun",      "--nodes=1", "--ntasks=1",     "--nodelist=" + ticket.node,
      "--overlap", "--mem=0",   "--cpu-bind=none"};
  if (const std::string job = job_of(ticket.node); !job.empty()) {
    arguments.push_back("--jobid=" + job);
  }
  arguments.insert(arguments.end(), {program, agent_flag});
  return StartedNode::start(
      credential, {.arguments = std::move(arguments), .output_path = log_path, .program = "srun"});
}

std::string slurm_job() {
  const char* job = std::getenv("SLURM_JOB_ID");
  return job == nullptr ? "" : job;
}

Result<std::vector<std::string>> slurm_nodes() {
  const char* list = std::getenv("SLURM_JOB_NODELIST");
  if (list == nullptr) {
    return fail(ErrorCode::not_found,
                "this is no Slurm allocation (SLURM_JOB_NODELIST is not set): run the launcher in "
                "salloc or sbatch");
  }
  TROUPE_TRY(const std::string names,
             run_program({"scontrol", "show", "hostnames", list}, "", program_timeout));
  std::vector<std::string> nodes;
  std::istringstream lines(names);
  for (std::string line; std::getline(lines, line);) nodes.push_back(line);
  return nodes;
}

Result<std::string> slurm_login_host() {
  const char* host = std::getenv("SLURM_SUBMIT_HOST");
  if (host == nullptr || *host == '\0' || slurm_job().empty()) {
    return fail(ErrorCode::not_found, "this is no job of Slurm");
  }
  if (host == host_name()) {
    return fail(ErrorCode::not_found, "this job was submitted from this host");
  }
  return std::string(host);
}

}  // namespace troupe
