#include <algorithm>
#include <vector>

#include "parallel/collectives/network/network_algorithms.hpp"
#include "parallel/collectives/tree_sum.hpp"

namespace troupe {

namespace {

// Adds the other rank's terms as they come; `sum` is other memory than `partial`, which is lent.
Result<void> sum_of_two(NetworkExchange& exchange, std::span<const float> partial,
                        std::span<float> sum) {
  const int other = 1 - exchange.rank();
  Transfers transfers(exchange.size());
  transfers.send(other, std::as_bytes(partial));
  transfers.receive(other, partial.size(), [&](std::size_t begin, std::span<const float> theirs) {
    const float* const own = partial.data() + begin;
    const float* const terms[] = {exchange.rank() == 0 ? own : theirs.data(),
                                  exchange.rank() == 0 ? theirs.data() : own};
    tree_sum(terms, sum.data() + begin, theirs.size());
  });
  return exchange.run(std::move(transfers));
}

}  // namespace

Result<void> network_all_reduce_one_shot(NetworkExchange& exchange, std::span<const float> partial,
                                         std::span<float> sum) {
  if (exchange.size() == 2 && partial.data() != sum.data()) {
    return sum_of_two(exchange, partial, sum);
  }
  // The terms, one row per rank; this rank's own is used in place unless the sum overwrites it.
  const std::span<float> rows =
      exchange.scratch(static_cast<std::size_t>(exchange.size()) * partial.size());
  std::vector<const float*> terms(static_cast<std::size_t>(exchange.size()));
  Transfers transfers(exchange.size());
  for (int r = 0; r < exchange.size(); ++r) {
    const auto row = rows.subspan(static_cast<std::size_t>(r) * partial.size(), partial.size());
    terms[static_cast<std::size_t>(r)] = row.data();
    if (r != exchange.rank()) {
      transfers.send(r, std::as_bytes(partial));
      transfers.receive(r, std::as_writable_bytes(row));
    } else if (partial.data() == sum.data()) {
      std::ranges::copy(partial, row.begin());
    } else {
      terms[static_cast<std::size_t>(r)] = partial.data();
    }
  }
  TROUPE_CHECK(exchange.run(std::move(transfers)));
  tree_sum(terms, sum.data(), sum.size());
  return {};
}

}  // namespace troupe
