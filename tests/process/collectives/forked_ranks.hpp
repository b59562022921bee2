#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace troupe::test {

/// The result of one forked rank: its own complaint, or how it ended abnormally.
using RankBody = std::function<std::string(int rank)>;

/// Runs `body` as `ranks` forked processes and returns their complaints, one entry per rank, empty
/// if all was well. A rank that is not done after `limit_seconds` is killed and reported. Call from
/// a process with one thread.
std::vector<std::string> run_forked(int ranks, const RankBody& body, int limit_seconds = 60);

}  // namespace troupe::test
