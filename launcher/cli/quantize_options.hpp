#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/quantize/plan.hpp"
#include "runtime/base/result.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// The options of `launcher quantize`.
struct QuantizeOptions {
  std::string model, output;  ///< folders
  QuantizationOptions quantization;
  std::vector<std::string> ignored;  ///< as given
  std::string calibrate;             ///< file; empty: none
  std::int64_t calibrate_windows = 128;
  std::int64_t calibrate_length = 512;  ///< tokens of a window
  bool keeps_layers = false;            ///< the worst layers stay as they are
  double keep_budget = 0.05;            ///< bytes that they may add, as a share of the input's
  int threads = 1;
  bool quiet = false;
};

/// The arguments of `launcher quantize`, unchecked.
class QuantizeArguments {
 public:
  std::string_view summary() const;
  std::string details() const;
  void declare(CLI::App& app);
  /// Errors: invalid_argument for options that do not go together, with what to give instead.
  Result<QuantizeOptions> judge() const;

 private:
  QuantizeOptions options_;
  std::string scheme_, method_, scales_ = "absmax", keep_ = "none", keep_budget_ = "5%", sparsity_;
  std::int64_t threads_ = 0;
};

}  // namespace troupe
