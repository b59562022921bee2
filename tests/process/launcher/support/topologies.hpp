#pragma once

#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

namespace troupe::launcher_test {

/// An arrangement of ranks, as values of --set below "parallel.".
struct Topology {
  std::string name;
  std::vector<std::string> parallel;
  bool experts = false;  ///< needs a model with experts

  friend void PrintTo(const Topology& topology, std::ostream* out) { *out << topology.name; }
};

/// Every kind of arrangement and mixes of them.
const std::vector<Topology>& topologies();

/// The product of the data, pipeline, context and tensor sizes.
int workers_of(const Topology& topology);

/// Values of --set that arrange the ranks so.
std::vector<std::string> settings_of(const Topology& topology);

/// Compares the answers to `input` in this arrangement over these collectives with those of one
/// rank, byte for byte. `model`: see LauncherJob; `engine`: values of --set below "engine.", for
/// the arrangement alone.
void expect_the_bytes_of_one_rank(const Topology& topology, const std::string& collectives,
                                  const std::string& input, const std::filesystem::path& model = {},
                                  const std::vector<std::string>& engine = {});

/// batch-64 (under sanitizers its first six), with token ids in the answers.
std::string golden_input();

}  // namespace troupe::launcher_test
