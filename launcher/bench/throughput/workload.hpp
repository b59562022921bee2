#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/engine/request.hpp"
#include "launcher/cli/bench_options.hpp"
#include "launcher/config/cluster_config.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// What requests must keep to.
struct WorkloadBounds {
  std::int64_t vocab_size = 0;
  std::int64_t max_model_len = 0;  ///< tokens of prompt and answer together
};

/// Requests to measure with; their ids are left 0.
struct Workload {
  std::string description;  ///< for a person, e.g. "random, 512 + 128 tokens, seed 0"
  std::vector<Request> requests;
};

/// A request of `prompt_tokens` token ids which depend on `seed` alone, greedy, whose answer has
/// exactly `output_tokens`.
Request random_request(std::int64_t prompt_tokens, std::int64_t output_tokens, std::uint64_t seed,
                       std::int64_t vocab_size);

/// The requests that `options` ask for: random ones, random ones with the lengths of a .csv file,
/// or those of a batch file as `config` answers them. Errors name the option, or file and line: a
/// file that cannot be read, a line that is no request, one that is longer than the context.
Result<Workload> make_workload(const BenchOptions& options, const Config& config,
                               const WorkloadBounds& bounds);

}  // namespace troupe
