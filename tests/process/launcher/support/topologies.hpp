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

/// Every kind of arrangement and the mixes of them; of one rank last.
const std::vector<Topology>& topologies();

/// Compares the answers of batch-64 in this arrangement over these collectives with those of one
/// rank, byte for byte. `model` as LauncherJob's.
void expect_the_bytes_of_one_rank(const Topology& topology, const std::string& collectives,
                                  const std::filesystem::path& model = {});

}  // namespace troupe::launcher_test
