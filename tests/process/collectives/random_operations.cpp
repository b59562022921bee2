#include "tests/process/collectives/random_operations.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

namespace troupe::test {

Tensor view(const Floats& values) {
  return {
      const_cast<float*>(values.data()), DType::f32, {static_cast<std::int64_t>(values.size())}};
}
Tensor view(const Floats& values, std::int64_t cols) {
  return view(values).reshaped({static_cast<std::int64_t>(values.size()) / cols, cols});
}

Floats contribution(unsigned seed, int step, int rank, std::size_t count) {
  std::mt19937 random(seed * 7919u + static_cast<unsigned>(step) * 104729u +
                      static_cast<unsigned>(rank));
  Floats values(count);
  for (float& value : values) {
    const auto bits = random();
    value = std::ldexp(static_cast<float>(bits >> 8) - 8388608.0f,
                       static_cast<int>(bits % 25u) - 12 - 23);
  }
  return values;
}

namespace {

using Rows = std::vector<std::int64_t>;

float sequential_tree(const std::vector<Floats>& terms, std::size_t i, std::size_t from,
                      std::size_t count) {
  if (count == 1) return terms[from][i];
  std::size_t half = 1;
  while (half * 2 < count) half *= 2;
  return sequential_tree(terms, i, from, half) +
         sequential_tree(terms, i, from + half, count - half);
}

// The expected result of a step.
struct Expected : Step {
  explicit Expected(const Step& of) : Step(of) {}

  std::vector<Floats> contributions(std::size_t count) const {
    std::vector<Floats> all;
    for (int r = 0; r < size; ++r) all.push_back(contribution(seed, step, r, count));
    return all;
  }
  Floats tree(std::size_t count) const {
    const std::vector<Floats> all = contributions(count);
    Floats sums(count);
    for (std::size_t i = 0; i < count; ++i) sums[i] = sequential_tree(all, i, 0, all.size());
    return sums;
  }
  std::string compare(std::string_view what, const Floats& expected, const Floats& found) const {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(expected[i]) == std::bit_cast<std::uint32_t>(found[i])) {
        continue;
      }
      return fmt::format("{}, seed {}, step {}, {} ranks, element {} of {}: expected {}, found {}",
                         what, seed, step, size, i, expected.size(), expected[i], found[i]);
    }
    return {};
  }
};

// Element counts that matter: none, one, around a cache line and a slot, and anything up to several
// slots. All ranks draw the same.
std::size_t random_count(std::mt19937& random) {
  constexpr std::size_t special[] = {0, 1, 15, 16, 17, 1023, 1024, 1025, 2048};
  if (random() % 3 == 0) return special[random() % std::size(special)];
  return random() % 5000;
}

Rows random_rows(std::mt19937& random, int size) {
  Rows rows(static_cast<std::size_t>(size));
  for (auto& count : rows)
    count = random() % 4 == 0 ? 0 : static_cast<std::int64_t>(random() % 300);
  return rows;
}

}  // namespace

std::string all_reduce(Collectives& group, const Step& which, std::mt19937& random) {
  const Expected step(which);
  const std::size_t count = random_count(random);
  const Floats own = contribution(step.seed, step.step, group.rank(), count);
  Floats sum(count, -1.0f);
  const unsigned way = random() % 3;
  if (way == 0) {
    sum = own;
    if (auto done = group.all_reduce_tree(view(sum)); !done) return done.error().message;
  } else {
    Tensor partial = view(own);
    // Ranks may differ in whether they stage.
    const Tensor staged = group.staging(DType::f32, partial.shape());
    if (way == 1 && group.rank() != 1 && staged.data() != nullptr) {
      if (count > 0) std::memcpy(staged.data(), own.data(), partial.bytes());
      partial = staged;
    }
    if (auto done = group.all_reduce_tree(partial, view(sum)); !done) return done.error().message;
  }
  return step.compare("all-reduce", step.tree(count), sum);
}

std::string reduce_scatter(Collectives& group, const Step& which, std::mt19937& random) {
  const Expected step(which);
  const Rows rows = random_rows(random, step.size);
  const std::int64_t cols = 1 + static_cast<std::int64_t>(random() % 9);
  const std::int64_t total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) * cols;
  const auto rank = static_cast<std::size_t>(group.rank());
  const Floats own =
      contribution(step.seed, step.step, group.rank(), static_cast<std::size_t>(total));
  Floats sum(static_cast<std::size_t>(rows[rank] * cols), -1.0f);
  Tensor partial = view(own, cols);
  const Tensor staged = group.staging(DType::f32, partial.shape());
  if (random() % 2 == 0 && staged.data() != nullptr) {
    if (total > 0) std::memcpy(staged.data(), own.data(), partial.bytes());
    partial = staged;
  }
  if (auto done = group.reduce_scatter_tree(partial, view(sum, cols), rows); !done) {
    return done.error().message;
  }
  const Floats whole = step.tree(static_cast<std::size_t>(total));
  const auto begin =
      whole.begin() + std::accumulate(rows.begin(), rows.begin() + group.rank(), 0l) * cols;
  return step.compare("reduce-scatter", Floats(begin, begin + rows[rank] * cols), sum);
}

std::string all_gather(Collectives& group, const Step& which, std::mt19937& random) {
  const Expected step(which);
  const Rows rows = random_rows(random, step.size);
  const std::int64_t cols = 1 + static_cast<std::int64_t>(random() % 9);
  Floats expected;
  Floats own;
  std::size_t own_begin = 0;
  for (int r = 0; r < step.size; ++r) {
    const Floats part =
        contribution(step.seed, step.step, r,
                     static_cast<std::size_t>(rows[static_cast<std::size_t>(r)] * cols));
    if (r == group.rank()) {
      own = part;
      own_begin = expected.size();
    }
    expected.insert(expected.end(), part.begin(), part.end());
  }
  Floats found(expected.size(), -1.0f);
  Tensor part = view(own, cols);
  if (random() % 2 == 0) {
    std::copy(own.begin(), own.end(), found.begin() + static_cast<long>(own_begin));
    part = view(found, cols).rows(static_cast<std::int64_t>(own_begin) / cols, part[0]);
  }
  if (auto done = group.all_gather(part, view(found, cols), rows); !done) {
    return done.error().message;
  }
  return step.compare("all-gather", expected, found);
}

std::string broadcast(Collectives& group, const Step& which, std::mt19937& random) {
  const Expected step(which);
  const std::size_t count = random_count(random);
  const int root = static_cast<int>(random() % static_cast<unsigned>(step.size));
  const Floats expected = contribution(step.seed, step.step, root, count);
  Floats found = contribution(step.seed, step.step, group.rank(), count);
  if (auto done = group.broadcast(view(found), root); !done) return done.error().message;
  return step.compare("broadcast", expected, found);
}

std::string all_to_all(Collectives& group, const Step& which, std::mt19937& random) {
  const Expected step(which);
  const std::int64_t cols = 1 + static_cast<std::int64_t>(random() % 9);
  std::vector<Rows> rows;  // [sender][receiver]
  for (int s = 0; s < step.size; ++s) rows.push_back(random_rows(random, step.size));
  const auto rank = static_cast<std::size_t>(group.rank());
  Floats expected;
  Rows receive_rows;
  Floats own;
  for (int s = 0; s < step.size; ++s) {
    const Rows& sent = rows[static_cast<std::size_t>(s)];
    const std::int64_t total = std::accumulate(sent.begin(), sent.end(), std::int64_t{0}) * cols;
    const Floats all = contribution(step.seed, step.step, s, static_cast<std::size_t>(total));
    if (s == group.rank()) own = all;
    const auto begin =
        all.begin() + std::accumulate(sent.begin(), sent.begin() + group.rank(), 0l) * cols;
    expected.insert(expected.end(), begin, begin + sent[rank] * cols);
    receive_rows.push_back(sent[rank]);
  }
  Floats found(expected.size(), -1.0f);
  auto done = group.all_to_all(view(own, cols), rows[rank], view(found, cols), receive_rows);
  if (!done) return done.error().message;
  return step.compare("all-to-all", expected, found);
}

std::string ring_of_messages(Collectives& group, const Step& which, std::mt19937& random) {
  const Expected step(which);
  const int next = (group.rank() + 1) % step.size;
  const int previous = (group.rank() + step.size - 1) % step.size;
  for (const bool forward : {true, false}) {
    const int to = forward ? next : previous;
    const int from = forward ? previous : next;
    const std::size_t count = random() % 400;  // all of it fits into the room of a lane
    const Floats own = contribution(step.seed, step.step, group.rank(), count);
    Floats found(count, -1.0f);
    if (auto done = group.send(view(own), to); !done) return done.error().message;
    if (auto done = group.receive(view(found), from); !done) return done.error().message;
    const std::string complaint =
        step.compare("message", contribution(step.seed, step.step, from, count), found);
    if (!complaint.empty()) return complaint;
  }
  return {};
}

}  // namespace troupe::test
