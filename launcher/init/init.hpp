#pragma once

#include <string>
#include <vector>

#include "launcher/cli/exit_code.hpp"
#include "launcher/cli/init_options.hpp"
#include "launcher/init/arrangement.hpp"
#include "models/config/model_config.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The nodes of a job on other machines.
struct InitNodes {
  std::string launch;              ///< the value of cluster.launch; empty: this machine alone
  std::vector<std::string> hosts;  ///< names of the nodes
};

/// Those of the options, else those of the Slurm allocation that this process runs in, if it does.
InitNodes nodes_for(const InitOptions& options);

/// Returns a cluster YAML of comments and values for `model`, whose folder is `path`, on `machine`;
/// lines of at most 80 columns, except for long paths. `weight_bytes`: of one whole model.
std::string starting_config(const std::string& path, const ModelConfig& model,
                            std::uint64_t weight_bytes, const Machine& machine,
                            const Arrangement& arrangement, const InitNodes& nodes = {});

/// `launcher init`: writes the file for this machine, or the assumed one, after it has passed the
/// checks of `launcher check`, and says so on stdout; mistakes go to stderr.
ExitCode run_init(const InitOptions& options);

}  // namespace troupe
