#include <algorithm>
#include <cstring>
#include <vector>

#include "parallel/collectives/shm/shm_algorithms.hpp"
#include "parallel/collectives/tree_sum.hpp"

namespace troupe {

namespace {

constexpr std::size_t line_elements = 64 / sizeof(float);

// The elements of a piece that a rank sums: whole cache lines, so no two ranks write one line.
struct Part {
  std::size_t begin;
  std::size_t count;
};

Part part_of(std::size_t elements, int rank, int size) {
  const std::size_t ranks = static_cast<std::size_t>(size);
  const std::size_t lines = (elements + line_elements - 1) / line_elements;
  const std::size_t share = (lines + ranks - 1) / ranks * line_elements;
  const std::size_t begin = std::min(elements, static_cast<std::size_t>(rank) * share);
  return {begin, std::min(share, elements - begin)};
}

const float* as_floats(std::span<const std::byte> slot) {
  return reinterpret_cast<const float*>(slot.data());
}

// Writes only what other ranks sum; this rank reads its own part from the caller's tensor.
void put_others_parts(const ShmRounds& rounds, const float* partial, std::size_t elements,
                      Part mine) {
  auto* own = reinterpret_cast<float*>(rounds.own_slot().data());
  if (partial == own) return;
  const std::size_t after = mine.begin + mine.count;
  std::memcpy(own, partial, mine.begin * sizeof(float));
  std::memcpy(own + after, partial + after, (elements - after) * sizeof(float));
}

}  // namespace

Result<void> shm_all_reduce_two_shot(ShmRounds& rounds, const float* partial, float* sum,
                                     std::size_t count) {
  const std::size_t piece = rounds.slot_bytes() / sizeof(float);
  const int size = rounds.size();
  std::vector<const float*> terms(static_cast<std::size_t>(size));
  for (std::size_t begin = 0; begin < count; begin += piece) {
    const std::size_t elements = std::min(piece, count - begin);
    const Part mine = part_of(elements, rounds.rank(), size);
    put_others_parts(rounds, partial + begin, elements, mine);
    TROUPE_CHECK(rounds.meet());

    for (int r = 0; r < size; ++r) {
      const float* theirs = r == rounds.rank() ? partial + begin : as_floats(rounds.met_slot(r));
      terms[static_cast<std::size_t>(r)] = theirs + mine.begin;
    }
    tree_sum(terms, reinterpret_cast<float*>(rounds.own_slot().data()), mine.count);
    TROUPE_CHECK(rounds.meet());

    for (int r = 0; r < size; ++r) {
      const Part theirs = part_of(elements, r, size);
      std::memcpy(sum + begin + theirs.begin, rounds.met_slot(r).data(),
                  theirs.count * sizeof(float));
    }
  }
  return {};
}

}  // namespace troupe
