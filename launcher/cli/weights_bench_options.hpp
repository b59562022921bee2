#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/cli/part_bench_options.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// The options of `launcher bench weights`.
struct WeightsBenchOptions : PartBenchOptions {
  std::string make_folder;  ///< folder for a checkpoint of random numbers to write first; empty:
                            ///< none
  std::int64_t repeat = 3;
  bool cold = false;  ///< drop files from the page cache before reading them
};

/// The arguments of `launcher bench weights`.
class WeightsBenchArguments {
 public:
  std::string_view summary() const;
  std::string details() const;
  void declare(CLI::App& app);
  Result<WeightsBenchOptions> judge() const;

 private:
  PartBenchArguments common_;
  WeightsBenchOptions options_;
};

}  // namespace troupe
