#include "parallel/collectives/network/network_algorithms.hpp"

namespace troupe {

Result<void> network_barrier(NetworkExchange& exchange) {
  Transfers transfers(exchange.size());
  for (int r = 0; r < exchange.size(); ++r) {
    if (r == exchange.rank()) continue;
    transfers.send(r, {});
    transfers.receive(r, {});
  }
  return exchange.run(std::move(transfers));
}

}  // namespace troupe
