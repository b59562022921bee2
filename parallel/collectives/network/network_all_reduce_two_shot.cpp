#include <algorithm>
#include <vector>

#include "parallel/collectives/network/network_algorithms.hpp"

namespace troupe {

Result<void> network_all_reduce_two_shot(NetworkExchange& exchange, std::span<const float> partial,
                                         std::span<float> sum) {
  const auto size = static_cast<std::size_t>(exchange.size());
  const auto rank = static_cast<std::size_t>(exchange.rank());
  const std::size_t share = (partial.size() + size - 1) / size;
  std::vector<std::size_t> elements(size);
  std::vector<std::size_t> bytes(size);
  for (std::size_t r = 0; r < size; ++r) {
    elements[r] = std::min(share, partial.size() - std::min(partial.size(), r * share));
    bytes[r] = elements[r] * sizeof(float);
  }
  const auto own = sum.subspan(std::min(sum.size(), rank * share), elements[rank]);
  TROUPE_CHECK(network_reduce_scatter(exchange, partial, own, elements));
  return network_all_gather(exchange, std::as_bytes(own), std::as_writable_bytes(sum), bytes);
}

}  // namespace troupe
