#include "tests/process/collectives/seats.hpp"

#include <array>
#include <cstdlib>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "parallel/collectives/network/network_collectives.hpp"
#include "parallel/collectives/shm/shm_collectives.hpp"

namespace troupe::test {

namespace {

template <class T>
T value_or_exit(Result<T> result) {
  if (!result.ok()) {
    fmt::print(stderr, "cannot take a seat: {}\n", result.error().message);
    std::abort();
  }
  return std::move(result).value();
}

// Written at once with less than PIPE_BUF bytes, so that announcements of several ranks do not mix.
struct Announcement {
  int rank;
  int bytes;
  std::array<char, 4000> text;
};

}  // namespace

std::string_view to_string(Backend backend) { return backend == Backend::shm ? "shm" : "network"; }

Seats::Seats(Backend backend, int ranks, std::size_t piece_bytes)
    : backend_(backend), ranks_(ranks), piece_bytes_(piece_bytes) {
  if (backend == Backend::shm) {
    region_ =
        value_or_exit(SharedMemory::create(shm_collectives_bytes(ranks, piece_bytes, piece_bytes)));
    return;
  }
  for (int r = 0; r < ranks; ++r) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
    pipes_.push_back({UniqueFd(ends[0]), UniqueFd(ends[1])});
  }
}

std::unique_ptr<Collectives> Seats::take(int rank) const {
  return backend_ == Backend::shm ? take_shm(rank) : take_network(rank);
}

std::unique_ptr<Collectives> Seats::take_shm(int rank) const {
  auto mapped = value_or_exit(SharedMemory::map(value_or_exit(region_.duplicate_fd())));
  return value_or_exit(ShmCollectives::attach(std::move(mapped), rank, ranks_, piece_bytes_));
}

std::unique_ptr<Collectives> Seats::take_network(int rank) const {
  auto rendezvous =
      value_or_exit(NetworkRendezvous::announce("lo", rank, ranks_, piece_bytes_, Key{}));
  const std::string own = rendezvous.addresses();
  Announcement announcement{rank, static_cast<int>(own.size()), {}};
  if (own.size() > announcement.text.size()) std::abort();
  own.copy(announcement.text.data(), own.size());
  for (const Pipe& pipe : pipes_) {
    if (::write(pipe.write.get(), &announcement, sizeof(announcement)) != sizeof(announcement)) {
      std::abort();
    }
  }
  std::vector<std::string> all(static_cast<std::size_t>(ranks_));
  for (int i = 0; i < ranks_; ++i) {
    const int pipe = pipes_[static_cast<std::size_t>(rank)].read.get();
    if (::read(pipe, &announcement, sizeof(announcement)) != sizeof(announcement)) std::abort();
    all[static_cast<std::size_t>(announcement.rank)].assign(
        announcement.text.data(), static_cast<std::size_t>(announcement.bytes));
  }
  return value_or_exit(std::move(rendezvous).connect(all));
}

}  // namespace troupe::test
