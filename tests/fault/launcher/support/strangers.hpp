#pragma once

#include <chrono>
#include <string_view>

namespace troupe::test {

struct StrangersOptions {
  int idle = 2000;              ///< connections held against each listener
  int knocks_per_second = 200;  ///< at each listener
  std::chrono::seconds duration{30};
  std::string_view parallel = "tensor_parallel_size: 2";
};

/// Runs a job whose processes may have 1,024 descriptors each, attacks all their listeners, from
/// this user and, if possible, from another one, and checks that the job goes on, no request fails,
/// metrics are answered, and the logs grow by at most 100 lines.
void expect_a_job_to_bear_strangers(const StrangersOptions& options);

}  // namespace troupe::test
