#include "launcher/bench/collectives/group_timer.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "parallel/collectives/network/network_collectives.hpp"
#include "parallel/collectives/shm/shm_collectives.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/memory/shared_memory.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;
using Call = std::function<Result<void>()>;

constexpr std::int64_t max_recorded_bytes = std::int64_t{4} << 20;
constexpr int calls_in_recording = 20;
constexpr std::int64_t large_message_bytes = std::int64_t{256} << 20;

/// A rank in its own thread. The device is a member before what connects the ranks.
struct Rank {
  std::unique_ptr<Collectives> host;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Collectives> on_device;
  DeviceTensor in, out;

  Collectives& group() const { return on_device ? *on_device : *host; }
};

/// The calls of one rank, on the first `bytes` of its memory.
class Calls {
 public:
  Calls(const Rank& rank, DType dtype, std::int64_t bytes)
      : rank_(rank), group_(rank.group()), dtype_(dtype), bytes_(bytes) {
    const std::int64_t words = bytes / static_cast<std::int64_t>(sizeof(std::int64_t));
    for (int r = 0; r < group_.size(); ++r) {
      rows_.push_back(ceil_slice(words, {r, group_.size()}).count);
    }
  }

  Result<void> run(const std::string& call) const {
    const auto own = static_cast<std::size_t>(group_.rank());
    const Tensor in = words(rank_.in), out = words(rank_.out);
    if (call == "sum") return group_.all_reduce_tree(numbers(rank_.in), numbers(rank_.out));
    if (call == "gather") return group_.all_gather(in.rows(0, rows_[own]), out, rows_);
    if (call == "scatter") {
      const auto each = static_cast<std::int64_t>(sizeof(std::int64_t) / size_of(dtype_));
      const Tensor sum(rank_.out->data(), dtype_, {rows_[own], each});
      return group_.reduce_scatter_tree(numbers(rank_.in).reshaped({in[0], each}), sum, rows_);
    }
    if (call == "exchange") {
      const std::vector<std::int64_t> taken(rows_.size(), rows_[own]);
      const Tensor received(rank_.out->data(), DType::i64,
                            {rows_[own] * group_.size(), std::int64_t{1}});
      return group_.all_to_all(in, rows_, received, taken);
    }
    // Each rank sends a message to the next one, in a ring.
    const int before = group_.rank() - 1, after = group_.rank() + 1;
    if (before >= 0) TROUPE_CHECK(group_.receive(out, before));
    return after < group_.size() ? group_.send(in, after) : Result<void>();
  }
  Result<void> run_library() const {
    return group_.library_all_reduce(numbers(rank_.in), numbers(rank_.out));
  }

 private:
  Tensor words(const DeviceTensor& memory) const {
    return {memory->data(),
            DType::i64,
            {bytes_ / static_cast<std::int64_t>(sizeof(std::int64_t)), std::int64_t{1}}};
  }
  Tensor numbers(const DeviceTensor& memory) const {
    return {memory->data(), dtype_, {bytes_ / static_cast<std::int64_t>(size_of(dtype_))}};
  }

  const Rank& rank_;
  Collectives& group_;
  DType dtype_;
  std::int64_t bytes_;
  std::vector<std::int64_t> rows_;  // words of each rank's share
};

/// Returns the seconds of a call, the same number on all ranks.
Result<double> time_calls(Rank& rank, std::int64_t bytes, double seconds, const Call& call) {
  std::unique_ptr<CapturedGraph> graph;
  const auto once = [&]() -> Result<void> {
    if (graph == nullptr) return call();
    rank.ops->stream().replay(*graph);
    return {};
  };
  const auto time = [&](int rounds) -> Result<double> {
    TROUPE_CHECK(rank.host->barrier());
    const auto begin = Clock::now();
    for (int round = 0; round < rounds; ++round) TROUPE_CHECK(once());
    TROUPE_CHECK(rank.ops->stream().synchronize());
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  TROUPE_CHECK(call());
  TROUPE_CHECK(call());
  TROUPE_CHECK(rank.ops->stream().synchronize());
  int in_round = 1;
  if (rank.on_device && bytes <= max_recorded_bytes) {
    in_round = calls_in_recording;
    TROUPE_TRY(graph, rank.ops->stream().capture([&]() -> Result<void> {
      for (int i = 0; i < in_round; ++i) TROUPE_CHECK(call());
      return {};
    }));
    TROUPE_CHECK(once());
    TROUPE_CHECK(rank.ops->stream().synchronize());
  }
  TROUPE_TRY(const double first, time(1));
  // The first rank decides how often, and measures.
  auto rounds = static_cast<std::int64_t>(std::clamp(seconds / std::max(first, 1e-7), 1.0, 1e5));
  TROUPE_CHECK(rank.host->broadcast(Tensor(&rounds, DType::i64, {1}), 0));
  TROUPE_TRY(double took, time(static_cast<int>(rounds)));
  TROUPE_CHECK(rank.host->broadcast(Tensor(&took, DType::i64, {1}), 0));
  return took / static_cast<double>(rounds * in_round);
}

Result<GroupFigures> measure(Rank& rank, const GroupTimes& times) {
  const std::int64_t most = std::ranges::max(times.bytes);
  // A rank's share of an exchange may be a word longer than the mean.
  const Shape room{most + times.ranks * std::int64_t{sizeof(std::int64_t)}};
  TROUPE_TRY(rank.in, rank.ops->memory().allocate(DType::u8, room));
  TROUPE_TRY(rank.out, rank.ops->memory().allocate(DType::u8, room));
  GroupFigures figures{.group = times.group, .ranks = times.ranks};
  for (const std::string& name : times.calls) {
    for (const std::int64_t bytes : times.bytes) {
      const Calls calls(rank, times.dtype, bytes);
      CollectiveFigure figure{.call = name, .bytes = bytes};
      TROUPE_TRY(figure.seconds,
                 time_calls(rank, bytes, times.seconds, [&] { return calls.run(name); }));
      if (name == "sum" && rank.on_device) {
        TROUPE_TRY(figure.library_seconds,
                   time_calls(rank, bytes, times.seconds, [&] { return calls.run_library(); }));
      }
      figures.calls.push_back(figure);
    }
  }
  return figures;
}

/// How the ranks' threads connect.
class Meeting {
 public:
  static Result<std::unique_ptr<Meeting>> create(const GroupTimes& times) {
    auto made = std::make_unique<Meeting>();
    if (times.collectives == "network") {
      SecretKey key;
      TROUPE_CHECK(random_bytes(key.bytes));
      for (int rank = 0; rank < times.ranks; ++rank) {
        TROUPE_TRY(auto seat,
                   NetworkRendezvous::announce("lo", rank, times.ranks,
                                               NetworkRendezvous::default_room_bytes, key.bytes));
        made->addresses_.push_back(seat.addresses());
        made->seats_.push_back(std::make_unique<NetworkRendezvous>(std::move(seat)));
      }
      return made;
    }
    TROUPE_TRY(SharedMemory region, SharedMemory::create(shm_collectives_bytes(times.ranks)));
    made->region_ = std::make_unique<SharedMemory>(std::move(region));
    return made;
  }

  Result<std::unique_ptr<Collectives>> join(int rank, int ranks) {
    if (region_ == nullptr) {
      TROUPE_TRY(auto links,
                 std::move(*seats_[static_cast<std::size_t>(rank)]).connect(addresses_));
      return std::unique_ptr<Collectives>(std::move(links));
    }
    TROUPE_TRY(UniqueFd fd, region_->duplicate_fd());
    TROUPE_TRY(SharedMemory mapped, SharedMemory::map(std::move(fd)));
    TROUPE_TRY(auto attached, ShmCollectives::attach(std::move(mapped), rank, ranks));
    return std::unique_ptr<Collectives>(std::move(attached));
  }

 private:
  std::unique_ptr<SharedMemory> region_;  ///< null over the network
  std::vector<std::unique_ptr<NetworkRendezvous>> seats_;
  std::vector<std::string> addresses_;
};

Result<GroupFigures> run_rank(const GroupTimes& times, Rank& own, int rank) {
  TROUPE_TRY(own.ops, make_ops({.kind = times.device, .dtype = times.dtype, .device = rank}));
  if (times.device == DeviceKind::cuda) {
    TROUPE_TRY(own.on_device, join_ranks(*own.ops, *own.host, {times.group}));
    TROUPE_CHECK(own.on_device->barrier());
  }
  return measure(own, times);
}

}  // namespace

Result<GroupFigures> time_group(const GroupTimes& times) {
  TROUPE_TRY(const auto meeting, Meeting::create(times));
  std::vector<Result<GroupFigures>> results(static_cast<std::size_t>(times.ranks), GroupFigures());
  std::latch all_done(times.ranks);
  const auto run = [&](int rank) -> Result<GroupFigures> {
    Rank own;
    Result<GroupFigures> figures = GroupFigures();
    auto joined = meeting->join(rank, times.ranks);
    if (joined.ok()) {
      own.host = *std::move(joined);
      figures = run_rank(times, own, rank);
      if (!figures.ok()) own.host->abort();
    } else {
      figures = joined.error();
    }
    all_done.arrive_and_wait();  // no memory is freed while another rank still reads or writes it
    return figures;
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < times.ranks; ++rank) {
      threads.emplace_back([&, rank] { results[static_cast<std::size_t>(rank)] = run(rank); });
    }
  }
  // An error other than "another rank gave up" tells the cause.
  const Result<GroupFigures>* worst = nullptr;
  for (const auto& result : results) {
    if (result.ok()) continue;
    if (worst == nullptr || worst->error().code == ErrorCode::cancelled) worst = &result;
  }
  if (worst != nullptr) return *worst;
  return std::move(results.front());
}

Result<double> message_bytes_per_second(GroupTimes times) {
  times.ranks = 2;
  times.calls = {"message"};
  times.bytes = {large_message_bytes};
  TROUPE_TRY(const GroupFigures figures, time_group(times));
  return static_cast<double>(large_message_bytes) / figures.calls.front().seconds;
}

}  // namespace troupe
