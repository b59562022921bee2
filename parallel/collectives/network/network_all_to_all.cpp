#include <cstring>

#include "parallel/collectives/network/network_algorithms.hpp"

namespace troupe {

Result<void> network_all_to_all(NetworkExchange& exchange, std::span<const std::byte> send,
                                std::span<const std::size_t> send_bytes,
                                std::span<std::byte> receive,
                                std::span<const std::size_t> receive_bytes) {
  Transfers transfers(exchange.size());
  std::size_t sent = 0;
  std::size_t received = 0;
  for (int r = 0; r < exchange.size(); ++r) {
    const auto theirs = send.subspan(sent, send_bytes[static_cast<std::size_t>(r)]);
    const auto ours = receive.subspan(received, receive_bytes[static_cast<std::size_t>(r)]);
    sent += theirs.size();
    received += ours.size();
    if (r != exchange.rank()) {
      transfers.send(r, theirs);
      transfers.receive(r, ours);
      continue;
    }
    if (theirs.size() != ours.size()) {
      return fail(ErrorCode::invalid_argument,
                  "all-to-all: rank {} sends {} bytes to itself, but expects {}", r, theirs.size(),
                  ours.size());
    }
    if (!ours.empty()) std::memcpy(ours.data(), theirs.data(), ours.size());
  }
  return exchange.run(std::move(transfers));
}

}  // namespace troupe
