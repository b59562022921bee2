// Round trip over a Channel between two processes, alone and with the connector's process
// forwarding each message to three more processes through a ShmBroadcast ring; these answer through
// a ring each, as a step plan travels. Medians and 99th percentiles.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <vector>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/channel/channel.hpp"
#include "runtime/channel/shm_broadcast.hpp"

namespace troupe {
namespace {

constexpr int rounds = 4000;
constexpr int warm_up = 200;
constexpr std::size_t ring_bytes = 1 << 20;

Deadline soon() { return deadline_in(std::chrono::seconds(20)); }

SharedMemory map_again(const SharedMemory& region) {
  auto fd = region.duplicate_fd();
  auto mapped = SharedMemory::map(std::move(*fd));
  return std::move(*mapped);
}

SharedMemory make_ring(int readers) {
  auto region = SharedMemory::create(shm_broadcast_bytes(readers, ring_bytes));
  return std::move(*region);
}

// The rings between the first worker and the others.
struct Fan {
  std::vector<SharedMemory> out;      // one ring, none without other workers
  std::vector<SharedMemory> answers;  // one ring from each other worker
};

bool first_worker(Channel& channel, const Fan& fan) {
  const int others = static_cast<int>(fan.answers.size());
  std::vector<ShmBroadcastWriter> out;
  std::vector<ShmBroadcastReader> answers;
  if (others > 0) {
    auto writer = ShmBroadcastWriter::attach(map_again(fan.out[0]), others);
    out.push_back(std::move(*writer));
  }
  for (const SharedMemory& ring : fan.answers) {
    auto reader = ShmBroadcastReader::attach(map_again(ring), 1, 0);
    answers.push_back(std::move(*reader));
  }
  for (int i = 0; i < rounds + warm_up; ++i) {
    auto message = channel.receive(soon());
    if (!message) return false;
    for (auto& writer : out) {
      if (!writer.send(message->bytes(), soon()).ok()) return false;
    }
    for (auto& reader : answers) {
      if (!reader.receive(soon()).ok()) return false;
    }
    if (!channel.send(message->bytes(), soon()).ok()) return false;
  }
  return channel.receive(soon()).ok();  // the farewell: a closed channel drops what is queued
}

bool other_worker(const Fan& fan, int index) {
  const int others = static_cast<int>(fan.answers.size());
  auto in = ShmBroadcastReader::attach(map_again(fan.out[0]), others, index);
  auto out = ShmBroadcastWriter::attach(map_again(fan.answers[static_cast<std::size_t>(index)]), 1);
  const std::array<std::byte, 16> answer{};
  for (int i = 0; i < rounds + warm_up; ++i) {
    if (!in->receive(soon()).ok() || !out->send(answer, soon()).ok()) return false;
  }
  return true;
}

int bench(std::string_view what, const ChannelEndpoint& endpoint, std::size_t bytes, int others) {
  const std::array<std::byte, 32> job_key{std::byte{7}};
  const ChannelKeys keys = ChannelKeys::derive(job_key, "bench");
  Fan fan;
  if (others > 0) fan.out.push_back(make_ring(others));
  for (int i = 0; i < others; ++i) fan.answers.push_back(make_ring(1));
  std::array<int, 2> address_pipe{};
  if (::pipe(address_pipe.data()) != 0) return 1;
  std::vector<pid_t> children;
  for (int worker = 0; worker <= others; ++worker) {
    const pid_t pid = ::fork();
    if (pid != 0) {
      children.push_back(pid);
      continue;
    }
    if (worker > 0) ::_exit(other_worker(fan, worker - 1) ? 0 : 1);
    std::array<char, 256> address{};
    if (::read(address_pipe[0], address.data(), address.size() - 1) <= 0) ::_exit(1);
    auto channel = Channel::connect(keys, address.data());
    ::_exit(channel.ok() && first_worker(*channel, fan) ? 0 : 1);
  }
  // The channel's threads start after the forks.
  auto channel = Channel::listen(keys, endpoint);
  const std::string address = channel.ok() ? channel->address() : "";
  bool ok = ::write(address_pipe[1], address.data(), address.size()) > 0;
  ::close(address_pipe[0]);
  ::close(address_pipe[1]);
  const std::vector<std::byte> payload(bytes);
  std::vector<double> times;
  for (int i = 0; ok && i < rounds + warm_up; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ok = channel->send(payload, soon()).ok() && channel->receive(soon()).ok();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (i >= warm_up) times.push_back(took.count());
  }
  ok = ok && channel->send({}, soon()).ok();
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    ok = ok && status == 0;
  }
  if (!ok) {
    fmt::print("{}: failed\n", what);
    return 1;
  }
  std::sort(times.begin(), times.end());
  fmt::print("{:<6} {:>7} bytes, {} more readers: median {:7.1f} us, p99 {:7.1f} us\n", what, bytes,
             others, times[times.size() / 2], times[times.size() * 99 / 100]);
  std::fflush(stdout);
  return 0;
}

}  // namespace
}  // namespace troupe

int main() {
  using troupe::bench;
  using troupe::ChannelEndpoint;
  int failed = 0;
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{8} << 10, std::size_t{74} << 10}) {
    failed += bench("ipc", ChannelEndpoint::on_this_node(), bytes, 0);
    failed += bench("ipc", ChannelEndpoint::on_this_node(), bytes, 3);
    failed += bench("tcp", ChannelEndpoint::on_network("lo"), bytes, 0);
  }
  return failed;
}
