#include <algorithm>
#include <vector>

#include "parallel/collectives/network/network_algorithms.hpp"
#include "parallel/collectives/tree_sum.hpp"

namespace troupe {

Result<void> network_reduce_scatter(NetworkExchange& exchange, std::span<const float> partial,
                                    std::span<float> sum,
                                    std::span<const std::size_t> elements_per_rank) {
  const std::span<float> rows =
      exchange.scratch(static_cast<std::size_t>(exchange.size()) * sum.size());
  std::vector<const float*> terms(static_cast<std::size_t>(exchange.size()));
  Transfers transfers(exchange.size());
  std::size_t begin = 0;
  for (int r = 0; r < exchange.size(); ++r) {
    const auto theirs = partial.subspan(begin, elements_per_rank[static_cast<std::size_t>(r)]);
    const auto row = rows.subspan(static_cast<std::size_t>(r) * sum.size(), sum.size());
    begin += theirs.size();
    terms[static_cast<std::size_t>(r)] = row.data();
    if (r != exchange.rank()) {
      transfers.send(r, std::as_bytes(theirs));
      transfers.receive(r, std::as_writable_bytes(row));
    } else if (theirs.data() == sum.data()) {
      std::ranges::copy(theirs, row.begin());
    } else {
      terms[static_cast<std::size_t>(r)] = theirs.data();
    }
  }
  TROUPE_CHECK(exchange.run(std::move(transfers)));
  tree_sum(terms, sum.data(), sum.size());
  return {};
}

}  // namespace troupe
