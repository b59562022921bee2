#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/preflight/node_facts.hpp"
#include "actors/preflight/node_probe.hpp"

namespace troupe {

/// What the job will need on one node.
struct NodeNeeds {
  int gpus = 0;
  std::uint64_t weight_bytes = 0;  ///< of host memory, of all its workers
};

/// What a job needs of its nodes.
struct PreflightNeeds {
  std::vector<CheckpointFacts> checkpoints;  ///< as the launcher sees them
  std::vector<NodeNeeds> nodes;              ///< in the order of the cluster's
  std::uint64_t open_files = 0;              ///< of a process
  bool leaves_gpus = false;                  ///< it does not use them, and nobody said so
  std::string stage_folder;  ///< where nodes without a checkpoint get a copy; empty: they do not
};

/// A node as preflight has found it.
struct ProbedNode {
  struct Link {
    std::string to;  ///< a node's name
    LinkFacts facts;
  };
  std::string name;
  std::string address;  ///< numeric
  NodeFacts facts;
  std::vector<Link> links;
  /// By how many seconds its clock is ahead of the launcher's, and the most that this may be off.
  double clock_ahead = 0;
  double clock_error = 0;
  std::string problem;  ///< why it could not be looked at; empty: it could
};

/// What is wrong with a node.
struct Finding {
  std::string node;
  bool is_fatal = true;  ///< the job cannot run; else it is a warning
  std::string what;
  std::string remedy;
};

/// Where a node has an equal copy of a checkpoint, from the best to the worst.
enum class CheckpointPlace {
  staged,  ///< in the stage folder
  own,     ///< where the launcher has it
  none
};
/// The place of checkpoint number `index`, which the launcher sees as `own`.
CheckpointPlace place_of(const CheckpointFacts& own, const NodeFacts& facts, std::size_t index);

/// Compares nodes with what the job needs of them and with each other: at most one finding of each
/// kind a node, in the order of the nodes.
std::vector<Finding> judge_nodes(const PreflightNeeds& needs, std::span<const ProbedNode> nodes);

/// "NODE: WHAT: REMEDY", one line.
std::string describe(const Finding& finding);

/// A line for each node: what it has and the slowest of its links. At most 80 columns if no node's
/// name is longer than 12.
std::string preflight_table(const PreflightNeeds& needs, std::span<const ProbedNode> nodes);

}  // namespace troupe
