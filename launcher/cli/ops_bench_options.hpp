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

/// The options of `launcher bench ops`.
struct OpsBenchOptions : PartBenchOptions {
  std::vector<std::int64_t> rows = {1, 8, 64, 256, 4096};  ///< tokens of a pass, ascending
  std::int64_t context = 512;  ///< tokens of each sequence, the newest included
  double seconds = 0.05;       ///< approximate time for each operation
};

/// The arguments of `launcher bench ops`.
class OpsBenchArguments {
 public:
  std::string_view summary() const;
  std::string details() const;
  void declare(CLI::App& app);
  Result<OpsBenchOptions> judge() const;

 private:
  PartBenchArguments common_;
  OpsBenchOptions options_;
};

}  // namespace troupe
