#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/config_arguments.hpp"
#include "launcher/cli/fault_options.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/result.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// A range of token counts, all equally likely.
struct LengthRange {
  std::int64_t shortest = 1;
  std::int64_t longest = 1;

  bool operator==(const LengthRange&) const = default;
};

/// The loads of `launcher bench sweep`, and the limits of a good answer.
struct SweepOptions {
  bool by_rate = false;  ///< loads are requests per second, else requests at once
  std::vector<double> loads = {1, 4, 16, 64};  ///< ascending; an infinite rate: all at once
  std::int64_t warm_up = 4;                    ///< uncounted requests before the first load
  /// Limits in milliseconds for an answer to count for goodput; absent: none.
  std::optional<double> ttft_ms = {};
  std::optional<double> tpot_ms = {};
  std::optional<double> e2e_ms = {};
  std::string html = {};  ///< output file for the plots; empty: none

  bool has_limits() const { return ttft_ms || tpot_ms || e2e_ms; }
};

/// The options of `launcher bench`.
struct BenchOptions {
  enum class Kind {
    throughput,  ///< all requests at once
    latency,     ///< one request after another
    startup,     ///< until the engine serves, and until the first token
    sweep,       ///< one load after another
    faults,      ///< the same requests again and again while processes are lost
  };
  Kind kind = Kind::throughput;
  ConfigSource config = {};
  bool quiet = false;  ///< no progress; errors still go to stderr
  log::Level log_level = log::Level::info;
  std::optional<std::int64_t> num_prompts = {};  ///< absent: all of a file, or 64 random ones
  LengthRange input_len{512, 512};               ///< of random requests
  LengthRange output_len{128, 128};
  std::uint64_t seed = 0;
  float temperature = 0.0F;   ///< of random requests; for faults, of every second one
  std::string workload = {};  ///< a file of requests; empty: random ones
  std::string json = {};      ///< output file for the figures; empty: none
  std::int64_t repeat = 3;    ///< number of starts; for sweep, runs of each load
  SweepOptions sweep = {};
  FaultOptions faults = {};
};

/// "throughput", "latency", "startup", "sweep" or "faults".
std::string_view to_string(BenchOptions::Kind kind);

/// The arguments of `launcher bench KIND`. Each kind has only the options that affect it.
class BenchArguments {
 public:
  explicit BenchArguments(BenchOptions::Kind kind) : kind_(kind) {}

  std::string_view summary() const;
  std::string details() const;
  void declare(CLI::App& app);
  /// Errors: invalid_argument with the option, the expected and the given value.
  Result<BenchOptions> judge() const;

 private:
  BenchOptions::Kind kind_;
  ConfigArguments config_;
  bool quiet_ = false;
  std::string log_level_ = "info";
  std::optional<std::int64_t> num_prompts_, repeat_;
  std::uint64_t seed_ = 0;
  std::optional<float> temperature_;
  std::string input_len_, output_len_, workload_, json_;
  std::string rates_, at_once_, html_;
  std::optional<std::int64_t> warm_up_;
  std::optional<double> ttft_ms_, tpot_ms_, e2e_ms_;
  FaultArguments faults_;

  void declare_requests(CLI::App& app);
  void declare_loads(CLI::App& app);
  Result<SweepOptions> judge_sweep() const;
  Result<void> judge_effects() const;
};

}  // namespace troupe
