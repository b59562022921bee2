#include "parallel/collectives/network/network_algorithms.hpp"

namespace troupe {

Result<void> network_broadcast(NetworkExchange& exchange, std::span<std::byte> bytes, int root) {
  Transfers transfers(exchange.size());
  if (exchange.rank() != root) {
    transfers.receive(root, bytes);
  } else {
    for (int r = 0; r < exchange.size(); ++r) {
      if (r != root) transfers.send(r, bytes);
    }
  }
  return exchange.run(std::move(transfers));
}

}  // namespace troupe
