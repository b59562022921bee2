// Latency and bandwidth of the collectives between forked processes, beside one memcpy and one
// message over a plain TCP connection of the same bytes, measured in the same run by the same rank.
// Medians of each call's time with a barrier before it; rank 0 prints.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "parallel/collectives/network/network_collectives.hpp"
#include "parallel/collectives/shm/shm_collectives.hpp"
#include "parallel/collectives/tree_sum.hpp"
#include "tests/bench/collectives/tcp_pair.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;
using Call = std::function<bool()>;

struct Seat {
  Collectives& group;
  const TcpPair& tcp;  // between ranks 0 and 1
  std::string_view name;
  bool prints() const { return group.rank() == 0; }
};

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

int rounds_for(std::size_t bytes) {
  return static_cast<int>(std::clamp<std::size_t>((32u << 20) / bytes, 30, 1000));
}

double median_us(Collectives& group, int rounds, const Call& call) {
  std::vector<double> times;
  for (int i = 0; i < rounds + rounds / 10; ++i) {
    if (!group.barrier().ok()) return -1;
    const auto begin = Clock::now();
    if (!call()) return -1;
    if (i >= rounds / 10) times.push_back(us_since(begin));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

// The tensor plane's yardstick: the same calls over plain TCP, in turn with them.
void bench_beside_tcp(const Seat& seat) {
  Collectives& group = seat.group;
  constexpr std::int64_t elements = 1 << 18;
  const HostTensor in(DType::f32, {elements}), out(DType::f32, {elements});
  const HostTensor theirs(DType::f32, {elements});
  const std::vector<std::int64_t> halves(2, elements / 2);
  const std::size_t bytes = in->bytes();
  const auto time = [&](const Call& call) { return median_us(group, 40, call); };
  if (seat.prints()) {
    fmt::print(
        "\n{}, 1 MiB beside the same over plain TCP, us\n{:>10} {:>8} {:>6} {:>10} "
        "{:>8} {:>6}\n",
        seat.name, "all-reduce", "tcp", "tcp/", "all-to-all", "tcp", "tcp/");
  }
  for (int repetition = 0; repetition < 7; ++repetition) {
    const double reduce = time([&] { return group.all_reduce_tree(in, out).ok(); });
    const double tcp_reduce = time([&] {
      if (!seat.tcp.exchange(in->data(), theirs->data(), bytes)) return false;
      const float* terms[] = {in->as<float>(), theirs->as<float>()};
      tree_sum(terms, out->as<float>(), elements);
      return true;
    });
    const double exchange = time([&] { return group.all_to_all(in, halves, out, halves).ok(); });
    const double tcp_exchange = time([&] {
      std::memcpy(out->data(), in->data(), bytes / 2);
      return seat.tcp.exchange(in->rows(elements / 2, elements / 2).data(),
                               out->rows(elements / 2, elements / 2).data(), bytes / 2);
    });
    if (seat.prints()) {
      fmt::print("{:>10.0f} {:>8.0f} {:>6.2f} {:>10.0f} {:>8.0f} {:>6.2f}\n", reduce, tcp_reduce,
                 tcp_reduce / reduce, exchange, tcp_exchange, tcp_exchange / exchange);
    }
  }
}

// Calls back to back, as a model's layers make them: no barrier between, so an early rank waits
// inside the call.
double mean_us(Collectives& group, int rounds, const Call& call) {
  if (!group.barrier().ok()) return -1;
  const auto begin = Clock::now();
  for (int i = 0; i < rounds; ++i) {
    if (!call()) return -1;
  }
  return us_since(begin) / rounds;
}

// A message there and back between ranks 0 and 1: half of the mean.
double one_way_us(Collectives& group, int rounds, const Call& send, const Call& receive) {
  if (group.rank() > 1) return group.barrier().ok() && group.barrier().ok() ? 0 : -1;
  const double both = mean_us(
      group, rounds, [&] { return group.rank() == 0 ? send() && receive() : receive() && send(); });
  return group.barrier().ok() ? both / 2 : -1;
}

// MB/s of many messages one way, the last of them acknowledged.
double stream_mb_s(Collectives& group, std::size_t bytes, int rounds, const Call& send,
                   const Call& receive) {
  if (group.rank() > 1) return group.barrier().ok() && group.barrier().ok() ? 0 : -1;
  if (!group.barrier().ok()) return -1;
  const auto begin = Clock::now();
  for (int i = 0; i < rounds; ++i) {
    if (!(group.rank() == 0 ? send() : receive())) return -1;
  }
  if (!(group.rank() == 0 ? receive() : send())) return -1;
  const double us = us_since(begin);
  return group.barrier().ok() ? static_cast<double>(bytes) * rounds / us : -1;
}

void bench_collectives(const Seat& seat) {
  Collectives& group = seat.group;
  if (seat.prints()) {
    fmt::print(
        "\n{}, {} ranks, us a call\n{:>8} {:>8} {:>8} {:>10} {:>8} {:>9} {:>9} {:>9} {:>9} "
        "{:>10} {:>8} {:>8}\n",
        seat.name, group.size(), "bytes", "memcpy", "tcp", "all-reduce", "staged", "in a row",
        "red-scat", "gather", "broadcast", "all-to-all", "/memcpy", "/tcp");
  }
  for (std::size_t bytes = 4 << 10; bytes <= 4 << 20; bytes *= 4) {
    const auto elements = static_cast<std::int64_t>(bytes / sizeof(float));
    const int rounds = rounds_for(bytes);
    const HostTensor in(DType::f32, {elements});
    const HostTensor out(DType::f32, {elements});
    const std::vector<std::int64_t> rows(static_cast<std::size_t>(group.size()),
                                         elements / group.size());
    const auto time = [&](const Call& call) { return median_us(group, rounds, call); };
    const double copy = time([&] {
      std::memcpy(out->data(), in->data(), bytes);
      return true;
    });
    const double tcp = one_way_us(
        group, rounds, [&] { return seat.tcp.send(in->data(), bytes); },
        [&] { return seat.tcp.receive(out->data(), bytes); });
    const double reduce = time([&] { return group.all_reduce_tree(in, out).ok(); });
    const bool stages = group.staging(DType::f32, {elements}).data() != nullptr;
    const double staged = !stages ? 0 : time([&] {
      return group.all_reduce_tree(group.staging(DType::f32, {elements}), out).ok();
    });
    const double row = mean_us(group, rounds, [&] { return group.all_reduce_tree(in, out).ok(); });
    const double scatter =
        time([&] { return group.reduce_scatter_tree(in, out->rows(0, rows[0]), rows).ok(); });
    const double gather =
        time([&] { return group.all_gather(in->rows(0, rows[0]), out, rows).ok(); });
    const double cast = time([&] { return group.broadcast(out, 0).ok(); });
    const double exchange = time([&] { return group.all_to_all(in, rows, out, rows).ok(); });
    if (seat.prints()) {
      fmt::print(
          "{:>8} {:>8.1f} {:>8.1f} {:>10.1f} {:>8.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} "
          "{:>10.1f} {:>8.2f} {:>8.2f}\n",
          bytes, copy, tcp, reduce, staged, row, scatter, gather, cast, exchange, reduce / copy,
          reduce / tcp);
    }
  }
  const double barrier = mean_us(group, 1000, [&] { return group.barrier().ok(); });
  if (seat.prints()) fmt::print("barrier {:.1f} us\n", barrier);
}

void bench_messages(const Seat& seat) {
  Collectives& group = seat.group;
  const int other = 1 - group.rank();
  if (seat.prints()) {
    fmt::print("\n{}, messages between two\n{:>8} {:>12} {:>12} {:>8} {:>12} {:>12} {:>8}\n",
               seat.name, "bytes", "one way us", "tcp us", "/tcp", "MB/s", "tcp MB/s", "/tcp");
  }
  for (std::size_t bytes = 64; bytes <= 4 << 20; bytes *= 8) {
    const int rounds = rounds_for(bytes);
    const HostTensor tensor(DType::u8, {static_cast<std::int64_t>(bytes)});
    const Call send = [&] { return group.send(tensor, other).ok(); };
    const Call receive = [&] { return group.receive(tensor, other).ok(); };
    const Call tcp_send = [&] { return seat.tcp.send(tensor->data(), bytes); };
    const Call tcp_receive = [&] { return seat.tcp.receive(tensor->data(), bytes); };
    const double way = one_way_us(group, rounds, send, receive);
    const double tcp_way = one_way_us(group, rounds, tcp_send, tcp_receive);
    const double stream = stream_mb_s(group, bytes, rounds, send, receive);
    const double tcp_stream = stream_mb_s(group, bytes, rounds, tcp_send, tcp_receive);
    if (seat.prints()) {
      fmt::print("{:>8} {:>12.1f} {:>12.1f} {:>8.2f} {:>12.0f} {:>12.0f} {:>8.2f}\n", bytes, way,
                 tcp_way, way / tcp_way, stream, tcp_stream, stream / tcp_stream);
    }
  }
}

Result<std::unique_ptr<Collectives>> join_network(Collectives& shm) {
  TROUPE_TRY(auto rendezvous,
             NetworkRendezvous::announce("lo", shm.rank(), shm.size(),
                                         NetworkRendezvous::default_room_bytes, Key{}));
  const std::string own = rendezvous.addresses();
  const auto bytes = static_cast<std::int64_t>(own.size());
  const HostTensor part(DType::u8, {1, bytes});
  const HostTensor all(DType::u8, {shm.size(), bytes});
  std::memcpy(part->data(), own.data(), own.size());
  TROUPE_CHECK(shm.all_gather(part, all,
                              std::vector<std::int64_t>(static_cast<std::size_t>(shm.size()), 1)));
  std::vector<std::string> addresses;
  for (int r = 0; r < shm.size(); ++r) {
    addresses.emplace_back(static_cast<const char*>(all->rows(r, 1).data()), own.size());
  }
  TROUPE_TRY(auto joined, rendezvous.connect(addresses));
  return std::unique_ptr<Collectives>(std::move(joined));
}

bool join_tcp(Collectives& shm, TcpPair& tcp) {
  const HostTensor port(DType::i32, {1});
  if (shm.rank() == 0) port->as<std::int32_t>()[0] = tcp.listen();
  if (!shm.broadcast(port, 0).ok()) return false;
  if (shm.rank() == 0) return tcp.accept();
  return shm.rank() > 1 || tcp.connect(static_cast<std::uint16_t>(port->as<std::int32_t>()[0]));
}

// Keeps the kernel from waking a rank on the core of the one that wrote to it, where they would
// take turns.
void stay_on_core(int rank) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<std::size_t>(rank) % std::thread::hardware_concurrency(), &cores);
  ::sched_setaffinity(0, sizeof(cores), &cores);
}

int bench_rank(SharedMemory region, int rank, int ranks, bool is_short) {
  stay_on_core(rank);
  auto shm = ShmCollectives::attach(std::move(region), rank, ranks);
  if (!shm) return 1;
  TcpPair tcp;
  if (!join_tcp(**shm, tcp)) return 1;
  auto network = join_network(**shm);
  if (!network) return 1;
  if (is_short) {
    bench_beside_tcp({**network, tcp, "network"});
    std::fflush(stdout);
    return 0;
  }
  for (const Seat& seat : {Seat{**shm, tcp, "shm"}, Seat{**network, tcp, "network"}}) {
    bench_collectives(seat);
    if (ranks == 2) {
      bench_messages(seat);
      bench_beside_tcp(seat);
    }
  }
  std::fflush(stdout);
  return 0;
}

int bench(int ranks, bool is_short) {
  auto region = SharedMemory::create(shm_collectives_bytes(ranks));
  if (!region) return 1;
  std::fflush(stdout);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid != 0) {
      children.push_back(pid);
      continue;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto mapped = SharedMemory::map(std::move(*region->duplicate_fd()));
    ::_exit(bench_rank(std::move(*mapped), rank, ranks, is_short));
  }
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    failed += status != 0 ? 1 : 0;
  }
  return failed;
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  const bool is_short = argc > 1 && std::string_view(argv[1]) == "--beside-tcp";
  return troupe::bench(2, is_short) + (is_short ? 0 : troupe::bench(4, false));
}
