#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace troupe {

/// The CPUs that an agent may use, and which of its processes are bound to them. Placement sees to
/// it that no more are asked for than there are. Not synchronised.
class CpuPool {
 public:
  /// `cpus`: ids.
  explicit CpuPool(std::span<const int> cpus);

  /// Returns the ids of `count` CPUs, ascending, which are `holder`'s until give_back: those that
  /// the fewest others hold, of these the ones in `near` first, of these the lowest ids. Fewer if
  /// there are fewer.
  std::vector<int> take(std::uint64_t holder, std::size_t count, std::span<const int> near);
  /// Does nothing if it holds none.
  void give_back(std::uint64_t holder);
  /// How many CPUs there are.
  std::size_t size() const { return holders_.size(); }

 private:
  std::map<int, std::size_t> holders_;  ///< the number of them, by CPU
  std::map<std::uint64_t, std::vector<int>> held_;
};

}  // namespace troupe
