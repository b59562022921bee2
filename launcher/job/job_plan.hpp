#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/api/engine_spec.hpp"
#include "actors/executor/request_preprocessor.hpp"
#include "launcher/config/cluster_config.hpp"
#include "launcher/machine/machine.hpp"
#include "models/config/model_config.hpp"
#include "models/model/footprint.hpp"
#include "parallel/mesh/mesh.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// A configuration with every `auto` decided for this machine and this model, and checked against
/// both.
struct JobPlan {
  Config config;
  ModelConfig model;
  EngineSpec engine;
  Mesh mesh;
  std::vector<RankFootprint> ranks;  ///< what each rank of the mesh will hold
  std::int64_t kv_blocks = 0;        ///< of a replica; fewer if free memory shrinks before it
                                     ///< starts
  int cores = 1;                     ///< logical cores of this machine
  ClusterOptions cluster = {};       ///< the nodes; without folders
  bool computes_here = true;         ///< the only node is this machine
  std::vector<std::string> rank_nodes = {};  ///< the node of each rank
  Gpus gpus = {};                            ///< of a job on GPUs, as far as known
  /// The model names that requests may use: those of the configuration, and the one in its files.
  std::vector<std::string> model_names;
  /// On GPUs: the kernels for each kind of attention in the model, a line each.
  std::vector<std::string> attention = {};
  std::string kv_codes = {};  ///< describe_kv_codes; empty: the KV cache holds numbers
  std::shared_ptr<const RequestPreprocessor> preprocessor = {};  ///< if the options keep it
  std::vector<std::string> warnings;                             ///< for the user, a sentence each
  /// Why a valid job cannot start: memory is missing. A sentence each, with what to change.
  std::vector<std::string> problems;
};

/// Options of plan_job.
struct PlanOptions {
  /// The GPUs of the machine that the job is meant for; then nothing of this machine counts. None:
  /// plan for this machine.
  std::optional<Gpus> assumed_gpus = {};
  /// Compares the workers' memory with that of their GPUs, which takes part of a second. Done
  /// anyway if engine.kv_cache_blocks is given.
  bool compares_gpu_memory = false;
  /// Keeps the tokenizer and template, which are read anyway, in plan.preprocessor.
  bool keeps_preprocessor = false;
};

/// Reads the model's headers and decides. Everything that can be refused before a process starts is
/// refused here: the checkpoint, its tokenizer and template, and what plan_mesh refuses. Errors
/// name file, tensor or key.
Result<JobPlan> plan_job(Config config, const PlanOptions& options = {});

/// Refuses a model and parallel sizes that plan_job would refuse whatever the nodes are.
Result<void> check_arrangement(Config config);

/// Returns the error of a plan with problems: resource_exhausted, with all of them.
Result<void> check_startable(const JobPlan& plan);

/// The output of `launcher check`: the configuration, then the mesh_table.
std::string describe(const JobPlan& plan);

}  // namespace troupe
