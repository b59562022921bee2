#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace troupe::test {

/// What became of one forked rank: its own complaint, or how it ended where it did not end well.
using RankBody = std::function<std::string(int rank)>;

/// Runs `body` as `ranks` forked processes and collects what they complain of, one entry a rank,
/// empty where all was well. A rank that is not done after `limit_seconds` is killed and reported.
/// Call from a process with one thread.
std::vector<std::string> run_forked(int ranks, const RankBody& body, int limit_seconds = 60);

}  // namespace troupe::test
