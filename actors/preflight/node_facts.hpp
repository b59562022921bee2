#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// A file of a checkpoint. Two copies count as equal if size and samples of their content are.
struct CheckpointFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string mark;  ///< see sampled_mark
  template <class Archive>
  void fields(Archive& archive) {
    archive(name, bytes, mark);
  }
};

/// A checkpoint's folder as one node sees it.
struct CheckpointFacts {
  std::string folder;
  std::vector<CheckpointFile> files;  ///< weights and JSON, by name
  std::string problem;                ///< why it cannot be read; empty: it can
  std::string distrust{};             ///< of copies: who else may have written it; empty: nobody
  template <class Archive>
  void fields(Archive& archive) {
    archive(folder, files, problem, distrust);
  }
};

std::uint64_t total_bytes(const CheckpointFacts& checkpoint);

/// Lists the files that a model is loaded from. Reads at most 128 KiB of each large one, so that a
/// hundred shards on a network file system take less than a second.
CheckpointFacts look_at_checkpoint(const std::string& folder);

/// Tells if others than this user and root own or may write a folder or a file in it, or may put
/// another one in its place; empty if not. Samples of its content prove nothing against somebody
/// who knows where they are taken. A link is judged by its owner and its place alone: this user
/// made it.
std::string other_writer_of(const std::string& folder);

/// The checkpoints and devices that a node is asked about.
struct FactsRequest {
  std::vector<std::string> checkpoints;  ///< folders
  bool with_gpus = false;                ///< takes part of a second
  std::string stage_folder;              ///< for copies of checkpoints; "~/" is the user's home
  std::vector<std::string> stage_names;  ///< of the copies in it; empty: none are made
  template <class Archive>
  void fields(Archive& archive) {
    archive(checkpoints, with_gpus, stage_folder, stage_names);
  }
};

/// The machine of a node, as a process of this job finds it.
struct NodeFacts {
  std::int32_t cores = 0;
  std::string cpu;                 ///< the widest instruction set that kernels use: "avx512"
  std::uint64_t memory_bytes = 0;  ///< available; 0: not known
  std::string folder;              ///< that processes run in
  std::uint64_t disk_bytes = 0;    ///< free there
  std::uint64_t open_files = 0;    ///< descriptors that a process may have
  std::int32_t gpus = 0;           ///< that this build runs on
  std::string gpu_driver;          ///< "550.54.15"; empty: none
  std::string gpu_problem;         ///< why GPUs cannot be counted
  std::vector<CheckpointFacts> checkpoints;
  std::vector<CheckpointFacts> staged;  ///< the copies, as far as they are there
  std::uint64_t stage_disk_bytes = 0;   ///< free where they are to be
  template <class Archive>
  void fields(Archive& archive) {
    archive(cores, cpu, memory_bytes, folder, disk_bytes, open_files, gpus, gpu_driver, gpu_problem,
            checkpoints, staged, stage_disk_bytes);
  }
};

/// Gathers the facts of this process's node.
NodeFacts gather_facts(const FactsRequest& request);

}  // namespace troupe
