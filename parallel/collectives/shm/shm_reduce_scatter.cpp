#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "parallel/collectives/shm/shm_algorithms.hpp"
#include "parallel/collectives/tree_sum.hpp"

namespace troupe {

namespace {

struct Scatter {
  ShmRounds& rounds;
  const float* partial;
  float* sum;
  std::span<const std::size_t> counts;  // elements of each rank
  std::vector<std::size_t> begins;      // where each rank's elements begin in partial

  std::size_t rank() const { return static_cast<std::size_t>(rounds.rank()); }

  // Sums `count` of this rank's elements, from `done` on; the others' terms are `at` elements into
  // their slots. This rank's own term is read from the caller's tensor.
  void sum_own(std::size_t done, std::size_t count, std::size_t at) const {
    std::vector<const float*> terms(counts.size());
    for (std::size_t r = 0; r < terms.size(); ++r) {
      const auto slot = rounds.met_slot(static_cast<int>(r));
      terms[r] = r == rank() ? partial + begins[r] + done
                             : reinterpret_cast<const float*>(slot.data()) + at;
    }
    tree_sum(terms, sum + done, count);
  }
};

// All of `partial` fits a slot and is put there as it is.
Result<void> in_one_round(const Scatter& scatter, std::size_t total) {
  auto* own = reinterpret_cast<float*>(scatter.rounds.own_slot().data());
  if (scatter.partial != own) std::memcpy(own, scatter.partial, total * sizeof(float));
  TROUPE_CHECK(scatter.rounds.meet());
  scatter.sum_own(0, scatter.counts[scatter.rank()], scatter.begins[scatter.rank()]);
  return {};
}

// Each round carries an equal share of a slot for every receiver, so that all of them have work.
Result<void> in_many_rounds(const Scatter& scatter) {
  const std::size_t share = scatter.rounds.slot_bytes() / sizeof(float) / scatter.counts.size();
  const std::size_t longest = *std::max_element(scatter.counts.begin(), scatter.counts.end());
  const auto share_of = [&](std::size_t r, std::size_t done) {
    return std::min(share, scatter.counts[r] - std::min(done, scatter.counts[r]));
  };
  for (std::size_t done = 0; done < longest; done += share) {
    auto* own = reinterpret_cast<float*>(scatter.rounds.own_slot().data());
    for (std::size_t r = 0; r < scatter.counts.size(); ++r) {
      if (r == scatter.rank() || share_of(r, done) == 0) continue;
      std::memcpy(own + r * share, scatter.partial + scatter.begins[r] + done,
                  share_of(r, done) * sizeof(float));
    }
    TROUPE_CHECK(scatter.rounds.meet());
    scatter.sum_own(done, share_of(scatter.rank(), done), scatter.rank() * share);
  }
  return {};
}

}  // namespace

Result<void> shm_reduce_scatter(ShmRounds& rounds, const float* partial, float* sum,
                                std::span<const std::size_t> elements_per_rank) {
  Scatter scatter{rounds, partial, sum, elements_per_rank,
                  std::vector<std::size_t>(elements_per_rank.size())};
  std::exclusive_scan(elements_per_rank.begin(), elements_per_rank.end(), scatter.begins.begin(),
                      std::size_t{0});
  const std::size_t total = scatter.begins.back() + elements_per_rank.back();
  if (total == 0) return {};
  if (total * sizeof(float) <= rounds.slot_bytes()) return in_one_round(scatter, total);
  return in_many_rounds(scatter);
}

}  // namespace troupe
