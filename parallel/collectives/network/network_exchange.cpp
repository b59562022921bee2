#include "parallel/collectives/network/network_exchange.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

Transfers::Transfers(int size)
    : sends(static_cast<std::size_t>(size), Outgoing{{}, 0, true}),
      receives(static_cast<std::size_t>(size), Incoming{.begun = true}) {}

void Transfers::send(int to, std::span<const std::byte> bytes) {
  sends[static_cast<std::size_t>(to)] = {bytes};
}

void Transfers::receive(int from, std::span<std::byte> bytes) {
  receives[static_cast<std::size_t>(from)] = {.bytes = bytes.size(), .room = bytes.data()};
}

void Transfers::receive(int from, std::size_t count, Incoming::Use use) {
  receives[static_cast<std::size_t>(from)] = {.bytes = count * sizeof(float),
                                              .use = std::move(use)};
}

bool Transfers::empty() const {
  return std::ranges::all_of(sends, &Outgoing::finished) &&
         std::ranges::all_of(receives, &Incoming::finished);
}

NetworkExchange::NetworkExchange(NetworkMesh& mesh) : mesh_(mesh) {
  for (int peer = 0; peer < mesh.size(); ++peer) {
    channels_.emplace_back(mesh, peer, NetworkMesh::Lane::collective);
  }
}

namespace {

// The ranks that a message is still to be sent to.
NetworkMesh::Ranks unfinished(const std::vector<Outgoing>& sends) {
  NetworkMesh::Ranks ranks;
  for (std::size_t r = 0; r < sends.size(); ++r) ranks[r] = !sends[r].finished();
  return ranks;
}

}  // namespace

Result<void> NetworkExchange::run(Transfers transfers) {
  Result<void> done = exchange(transfers);
  mesh_.drain();  // also after an error: the caller's bytes are lent
  return done;
}

Result<void> NetworkExchange::send_ahead(Transfers& transfers) {
  Result<void> done = push_what_fits(transfers);
  mesh_.drain();
  return done;
}

Result<void> NetworkExchange::exchange(Transfers& transfers) {
  bool more_to_receive = true;
  while (more_to_receive) {
    more_to_receive = false;
    for (int i = 1; i < size(); ++i) {
      const auto peer = static_cast<std::size_t>((rank() - i + size()) % size());
      Incoming& message = transfers.receives[peer];
      if (message.finished()) continue;
      bool arrived = false;
      while (!arrived) {
        TROUPE_CHECK(push_what_fits(transfers));
        TROUPE_TRY(arrived, mesh_.await(static_cast<int>(peer), NetworkMesh::Lane::collective,
                                        unfinished(transfers.sends)));
      }
      TROUPE_CHECK(channels_[peer].pull(message, call_));
      more_to_receive |= !message.finished();
    }
  }
  for (std::size_t peer = 0; peer < channels_.size(); ++peer) {
    while (!transfers.sends[peer].finished()) {
      TROUPE_CHECK(channels_[peer].push(transfers.sends[peer], call_));
    }
  }
  return {};
}

Result<void> NetworkExchange::push_what_fits(Transfers& transfers) {
  bool more = true;
  while (more) {
    more = false;
    // Starting with the next rank, so that not all of them begin with the same one.
    for (int i = 1; i < size(); ++i) {
      const auto peer = static_cast<std::size_t>((rank() + i) % size());
      Outgoing& message = transfers.sends[peer];
      if (message.finished() || !channels_[peer].has_room()) continue;
      TROUPE_CHECK(channels_[peer].push(message, call_));
      more |= !message.finished();
    }
  }
  return {};
}

}  // namespace troupe
