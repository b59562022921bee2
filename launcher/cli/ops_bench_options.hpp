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

/// Attention of any model, as --attention names it.
struct BenchedAttention {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t window = 0;  ///< 0: none
  float soft_cap = 0.0F;    ///< 0: none
  bool has_sinks = false;

  bool operator==(const BenchedAttention&) const = default;
};
/// Of "32/8x128", followed by any of ":window=4096", ":cap=50" and ":sinks". Errors:
/// invalid_argument.
Result<BenchedAttention> parse_benched_attention(const std::string& text);

/// The options of `launcher bench ops`.
struct OpsBenchOptions : PartBenchOptions {
  std::vector<std::int64_t> rows = {1, 8, 64, 256, 4096};  ///< tokens of a pass, ascending
  std::int64_t context = 512;               ///< tokens of each sequence, the newest included
  std::int64_t prefix = 0;                  ///< of these, tokens that all sequences share
  double seconds = 0.05;                    ///< approximate time for each operation
  std::vector<BenchedAttention> attention;  ///< if there is any: this, and nothing of the model
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
  std::vector<std::string> attention_;
};

}  // namespace troupe
