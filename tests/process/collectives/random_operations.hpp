#pragma once

#include <random>
#include <string>
#include <vector>

#include "parallel/collectives/collectives.hpp"

namespace troupe::test {

/// One call of a sequence, and the group that makes it.
struct Step {
  unsigned seed;
  int step;
  int size;
};

/// Runs one collective with arguments drawn from `random`, the same on every rank, and compares its
/// result bit by bit with that of a plain loop over all ranks' contributions. Returns what is
/// wrong, or nothing.
using Operation = std::string (*)(Collectives& group, const Step& step, std::mt19937& random);

std::string all_reduce(Collectives& group, const Step& step, std::mt19937& random);
std::string reduce_scatter(Collectives& group, const Step& step, std::mt19937& random);
std::string all_gather(Collectives& group, const Step& step, std::mt19937& random);
std::string broadcast(Collectives& group, const Step& step, std::mt19937& random);
std::string all_to_all(Collectives& group, const Step& step, std::mt19937& random);
/// Every rank sends to the next one, and receives from the one before; then both the other way.
std::string ring_of_messages(Collectives& group, const Step& step, std::mt19937& random);

using Floats = std::vector<float>;

/// Rank `rank`'s contribution in step `step`: magnitudes from 2^-12 to 2^12, so that the order of a
/// sum shows in its bits. Every rank can compute all contributions.
Floats contribution(unsigned seed, int step, int rank, std::size_t count);

/// [elements], or [elements / cols, cols].
Tensor view(const Floats& values);
Tensor view(const Floats& values, std::int64_t cols);

}  // namespace troupe::test
