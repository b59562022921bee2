#include <cstring>

#include "parallel/collectives/network/network_algorithms.hpp"

namespace troupe {

Result<void> network_all_gather(NetworkExchange& exchange, std::span<const std::byte> part,
                                std::span<std::byte> all,
                                std::span<const std::size_t> bytes_per_rank) {
  Transfers transfers(exchange.size());
  std::size_t begin = 0;
  for (int r = 0; r < exchange.size(); ++r) {
    const auto theirs = all.subspan(begin, bytes_per_rank[static_cast<std::size_t>(r)]);
    begin += theirs.size();
    if (r != exchange.rank()) {
      transfers.send(r, part);
      transfers.receive(r, theirs);
    } else if (theirs.data() != part.data() && !part.empty()) {
      std::memcpy(theirs.data(), part.data(), part.size());
    }
  }
  return exchange.run(std::move(transfers));
}

}  // namespace troupe
