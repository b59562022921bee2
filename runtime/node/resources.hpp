#pragma once

#include <string>
#include <vector>

namespace troupe {

/// An actor's reservation on its node: logical cpus (counted by placement, not pinned) and whole
/// devices (exclusive).
struct Resources {
  int cpus = 0;
  int devices = 0;

  template <class Archive>
  void fields(Archive& archive) {
    archive(cpus, devices);
  }
};

/// A node in placement's view. Several virtual nodes may share one machine.
struct NodeSpec {
  std::string name;
  int cpus = 0;
  std::vector<int> devices;  ///< ids, as passed to actors

  template <class Archive>
  void fields(Archive& archive) {
    archive(name, cpus, devices);
  }
};

/// How actors without an explicit node are spread: `pack` takes the first node with room (in the
/// order the nodes were given), `spread` the one with the fewest actors.
enum class Placement { pack, spread };

}  // namespace troupe
