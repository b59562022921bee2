#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/api/request.hpp"
#include "launcher/cli/bench_options.hpp"
#include "launcher/config/cluster_config.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Limits on requests.
struct WorkloadBounds {
  std::int64_t vocab_size = 0;
  std::int64_t max_model_len = 0;  ///< tokens of prompt and answer together
};

/// Requests to measure with; their ids are left 0.
struct Workload {
  std::string description;  ///< for a person, e.g. "random, 512 + 128 tokens, seed 0"
  std::vector<Request> requests;
};

/// Makes a greedy request of `prompt_tokens` token ids that depend on `seed` alone, whose answer
/// has exactly `output_tokens`.
Request random_request(std::int64_t prompt_tokens, std::int64_t output_tokens, std::uint64_t seed,
                       std::int64_t vocab_size);

/// Makes the requests that `options` select: random ones, random ones with the lengths of a .csv
/// file, or those of a batch file as `config` would answer them. Errors name the option, or file
/// and line: an unreadable file, an invalid line, one that is longer than the context.
Result<Workload> make_workload(const BenchOptions& options, const Config& config,
                               const WorkloadBounds& bounds);

/// The same, but of random requests only every second one, from the second on, has the temperature
/// of `options`; the others are greedy.
Result<Workload> make_mixed_workload(BenchOptions options, const Config& config,
                                     const WorkloadBounds& bounds);

}  // namespace troupe
