#pragma once

#include <optional>
#include <string>
#include <vector>

#include "actors/driver/engine_spec.hpp"
#include "launcher/config/cluster_config.hpp"
#include "launcher/machine/machine.hpp"
#include "models/config/model_config.hpp"
#include "models/model/footprint.hpp"
#include "parallel/mesh/mesh.hpp"
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
  std::int64_t kv_blocks = 0;        ///< of a replica; fewer if memory goes before it starts
  int cores = 1;                     ///< logical ones of this machine
  int devices = 1;                   ///< workers that the node takes
  Gpus gpus = {};                    ///< of a job on GPUs, as far as they were looked at
  /// What requests may call the model: the configuration's names, and the one its files record.
  std::vector<std::string> model_names;
  std::vector<std::string> warnings;  ///< what the person should know, a sentence each
  /// Why the job cannot start although it is valid: memory that is not there. A sentence each, with
  /// what to change.
  std::vector<std::string> problems;
};

/// What a plan is made for.
struct PlanOptions {
  /// The GPUs of the machine that the job is meant for, and nothing of this machine counts; none:
  /// this machine.
  std::optional<Gpus> assumed_gpus = {};
  /// Compares what workers hold with the memory of their GPUs, which takes a part of a second. It
  /// is done anyway where engine.kv_cache_blocks is given.
  bool compares_gpu_memory = false;
};

/// Reads the model's headers and decides. Everything that can be refused before a process starts is
/// refused here: the checkpoint, its tokenizer and template, and what plan_mesh refuses. Errors
/// name file, tensor or key.
Result<JobPlan> plan_job(Config config, const PlanOptions& options = {});

/// The error of a plan that has problems: resource_exhausted, with all of them.
Result<void> check_startable(const JobPlan& plan);

/// What `launcher check` prints: the configuration, then the mesh_table.
std::string describe(const JobPlan& plan);

}  // namespace troupe
