#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/part_bench_options.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// The options of `launcher bench collectives`.
struct CollectivesBenchOptions : PartBenchOptions {
  /// Sizes of messages, ascending.
  std::vector<std::int64_t> bytes = {8,         64,      512,      4 << 10, 32 << 10,
                                     256 << 10, 2 << 20, 16 << 20, 64 << 20};
  double seconds = 0.05;  ///< approximate time for each size of a collective
};

/// The arguments of `launcher bench collectives`.
class CollectivesBenchArguments {
 public:
  std::string_view summary() const;
  std::string details() const;
  void declare(CLI::App& app);
  Result<CollectivesBenchOptions> judge() const;

 private:
  PartBenchArguments common_;
  CollectivesBenchOptions options_;
};

}  // namespace troupe
