#include "tests/process/collectives/seats.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "parallel/collectives/hierarchical/hierarchical_collectives.hpp"
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

std::string_view to_string(Backend backend) {
  switch (backend) {
    case Backend::shm:
      return "shm";
    case Backend::network:
      return "network";
    case Backend::hierarchical:
      return "hierarchical";
  }
  return "";
}

Seats::Seats(Backend backend, int ranks, std::size_t piece_bytes)
    : backend_(backend), ranks_(ranks), piece_bytes_(piece_bytes) {
  if (backend == Backend::shm) {
    region_ =
        value_or_exit(SharedMemory::create(shm_collectives_bytes(ranks, piece_bytes, piece_bytes)));
    return;
  }
  open_pipes();
}

Seats::Seats(std::vector<int> node_of, std::size_t piece_bytes)
    : backend_(Backend::hierarchical),
      ranks_(static_cast<int>(node_of.size())),
      piece_bytes_(piece_bytes),
      node_of_(std::move(node_of)) {
  for (int node = 0; node <= std::ranges::max(node_of_); ++node) {
    const auto here = static_cast<int>(std::ranges::count(node_of_, node));
    node_regions_.push_back(here < 2 ? SharedMemory()
                                     : value_or_exit(SharedMemory::create(
                                           shm_collectives_bytes(here, piece_bytes, piece_bytes))));
  }
  open_pipes();
}

void Seats::open_pipes() {
  for (int r = 0; r < ranks_; ++r) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
    pipes_.push_back({UniqueFd(ends[0]), UniqueFd(ends[1])});
  }
}

std::unique_ptr<Collectives> Seats::take(int rank) const {
  if (backend_ == Backend::shm) return take_shm(rank);
  if (backend_ == Backend::network) return take_network(rank);
  return take_hierarchical(rank);
}

std::unique_ptr<Collectives> Seats::take_hierarchical(int rank) const {
  const int node = node_of_[static_cast<std::size_t>(rank)];
  const auto here = static_cast<int>(std::ranges::count(node_of_, node));
  const auto place = static_cast<int>(std::count(node_of_.begin(), node_of_.begin() + rank, node));
  std::unique_ptr<Collectives> within;
  if (here > 1) {
    const SharedMemory& region = node_regions_[static_cast<std::size_t>(node)];
    auto mapped = value_or_exit(SharedMemory::map(value_or_exit(region.duplicate_fd())));
    within = value_or_exit(ShmCollectives::attach(std::move(mapped), place, here, piece_bytes_));
  }
  return std::make_unique<HierarchicalCollectives>(std::move(within), take_network(rank), node_of_);
}

std::unique_ptr<Collectives> Seats::take_shm(int rank) const {
  auto mapped = value_or_exit(SharedMemory::map(value_or_exit(region_.duplicate_fd())));
  return value_or_exit(ShmCollectives::attach(std::move(mapped), rank, ranks_, piece_bytes_));
}

std::unique_ptr<NetworkCollectives> Seats::take_network(int rank) const {
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
  return value_or_exit(rendezvous.connect(all));
}

}  // namespace troupe::test
