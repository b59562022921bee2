#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// Numbers of tokens that are equally likely.
struct LengthRange {
  std::int64_t shortest = 1;
  std::int64_t longest = 1;

  bool operator==(const LengthRange&) const = default;
};

/// What `launcher bench` is to measure.
struct BenchOptions {
  enum class Kind {
    throughput,  ///< all requests at once
    latency,     ///< one request after another
    startup,     ///< until the engine serves, and until the first token
  };
  Kind kind = Kind::throughput;
  std::optional<std::int64_t> num_prompts = {};  ///< absent: all of a file, or 64 random ones
  LengthRange input_len{512, 512};               ///< of random requests
  LengthRange output_len{128, 128};
  std::uint64_t seed = 0;
  std::string workload = {};  ///< a file of requests; empty: random ones
  std::string json = {};      ///< where the figures go too; empty: nowhere
  std::int64_t repeat = 3;    ///< starts
};

/// "throughput", "latency" or "startup".
std::string_view to_string(BenchOptions::Kind kind);
std::optional<BenchOptions::Kind> bench_kind(std::string_view name);

/// The options of bench as they are given, before they are judged.
class RawBenchOptions {
 public:
  static constexpr std::string_view names[] = {
      "--num-prompts", "--input-len", "--output-len", "--seed", "--workload", "--json", "--repeat"};

  /// Adds them to `app`, which fills this object when it parses.
  void declare(CLI::App& app);

  /// Errors: invalid_argument with the option, what it needs and what came; one that has no effect
  /// on this kind.
  Result<BenchOptions> judge(BenchOptions::Kind kind) const;

 private:
  std::optional<std::int64_t> num_prompts_, repeat_;
  std::optional<std::uint64_t> seed_;
  std::string input_len_, output_len_, workload_, json_;
};

/// What `launcher bench --help` prints.
std::string bench_help_text();

}  // namespace troupe
