#include <numeric>
#include <vector>

#include "parallel/collectives/network/network_algorithms.hpp"
#include "parallel/collectives/two_shot.hpp"

namespace troupe {

Result<void> network_all_reduce_two_shot(NetworkExchange& exchange, std::span<const float> partial,
                                         std::span<float> sum) {
  const auto rank = static_cast<std::size_t>(exchange.rank());
  const std::vector<std::size_t> elements =
      equal_shares(partial.size(), static_cast<std::size_t>(exchange.size()));
  const auto begin =
      std::accumulate(elements.begin(), elements.begin() + exchange.rank(), std::size_t{0});
  const auto own = sum.subspan(begin, elements[rank]);
  TROUPE_CHECK(network_reduce_scatter(exchange, partial, own, elements));
  std::vector<std::size_t> bytes;
  for (const std::size_t count : elements) bytes.push_back(count * sizeof(float));
  return network_all_gather(exchange, std::as_bytes(own), std::as_writable_bytes(sum), bytes);
}

}  // namespace troupe
