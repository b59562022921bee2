#include "tests/support/hosts/slow_link.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t max_waiting_bytes = 1u << 20;
constexpr const char* tun = "/dev/net/tun";

void must_run(const std::string& command) {
  if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
}

// A TAP device in the network namespace of the calling thread; it is gone once closed.
UniqueFd open_tap(const std::string& name) {
  UniqueFd fd(::open(tun, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  if (!fd || ::ioctl(fd.get(), TUNSETIFF, &request) != 0) {
    throw std::runtime_error(fmt::format("TAP device {}: {}", name, std::strerror(errno)));
  }
  return fd;
}

UniqueFd open_tap_in(const std::string& host, const std::string& name) {
  UniqueFd fd;
  std::string error;
  std::thread([&] {  // which alone enters the host's namespace
    const UniqueFd space(::open(("/run/netns/" + host).c_str(), O_RDONLY | O_CLOEXEC));
    if (!space || ::setns(space.get(), CLONE_NEWNET) != 0) {
      error = fmt::format("namespace of {}: {}", host, std::strerror(errno));
      return;
    }
    try {
      fd = open_tap(name);
    } catch (const std::exception& found) {
      error = found.what();
    }
  })
      .join();
  if (!error.empty()) throw std::runtime_error(error);
  return fd;
}

/// The frames on their way in one direction.
class Lane {
 public:
  Lane(int from, int to, const SlowLink::Options& options)
      : from_(from), to_(to), options_(options) {}

  int from() const { return from_; }
  bool has_room() const { return waiting_bytes_ < max_waiting_bytes; }
  std::optional<Clock::time_point> next_due() const {
    return frames_.empty() ? std::nullopt : std::optional(frames_.front().due);
  }

  void take_all(Clock::time_point now) {
    std::array<std::byte, 2048> frame;
    while (has_room()) {
      const ssize_t bytes = ::read(from_, frame.data(), frame.size());
      if (bytes <= 0) return;
      if (is_swallowed(std::span(frame).first(static_cast<std::size_t>(bytes)))) continue;
      const std::chrono::duration<double> takes(static_cast<double>(bytes) /
                                                options_.bytes_per_second);
      sent_ = std::max(sent_, now) + std::chrono::duration_cast<Clock::duration>(takes);
      frames_.push_back({sent_ + options_.delay, {frame.begin(), frame.begin() + bytes}});
      waiting_bytes_ += static_cast<std::size_t>(bytes);
    }
  }
  /// Returns the bytes that have arrived.
  std::size_t give_due(Clock::time_point now) {
    std::size_t given = 0;
    for (; !frames_.empty() && frames_.front().due <= now; frames_.pop_front()) {
      const auto& bytes = frames_.front().bytes;
      if (::write(to_, bytes.data(), bytes.size()) > 0) given += bytes.size();
      waiting_bytes_ -= bytes.size();
    }
    return given;
  }

 private:
  bool is_swallowed(std::span<const std::byte> frame) const {
    constexpr std::size_t ethernet = 14, source = ethernet + 12, destination = ethernet + 16;
    constexpr std::byte this_machine{254};  // the last byte of its address
    if (options_.largest_between_hosts == 0 || frame.size() <= options_.largest_between_hosts) {
      return false;
    }
    return frame[source + 3] != this_machine && frame[destination + 3] != this_machine;
  }

  struct Frame {
    Clock::time_point due;
    std::vector<std::byte> bytes;
  };

  int from_, to_;
  const SlowLink::Options& options_;
  Clock::time_point sent_{};  // when the last frame has left
  std::deque<Frame> frames_;
  std::size_t waiting_bytes_ = 0;
};

// The end of the stall that `now` is in.
std::optional<Clock::time_point> stalled_until(const SlowLink::Options& options,
                                               Clock::time_point begin, Clock::time_point now) {
  if (options.stall_every.count() == 0) return std::nullopt;
  const auto end = begin + ((now - begin) / options.stall_every + 1) * options.stall_every;
  return now < end - options.stall ? std::nullopt : std::optional(end);
}

}  // namespace

std::string missing_slow_links() {
  if (auto missing = missing_hosts(); !missing.empty()) return missing;
  if (UniqueFd(::open(tun, O_RDWR | O_CLOEXEC))) return "";
  return fmt::format("slow links want {}: {}", tun, std::strerror(errno));
}

SlowLink::SlowLink(int host, Options options)
    : host_(host_name(host)), options_(options), stop_(::eventfd(0, EFD_CLOEXEC)) {
  // The relayed device takes the place, the name and the hardware address of the host's own.
  must_run(
      fmt::format("ip -n {0} link set eth0 down && ip -n {0} link set eth0 name cable", host_));
  near_ = open_tap("slow-" + host_);
  far_ = open_tap_in(host_, "eth0");
  must_run(
      fmt::format("ip link set slow-{0} master hosts up && "
                  "mac=$(ip -n {0} -o link show cable | grep -o 'ether [^ ]*' | cut -d' ' -f2) "
                  "&& ip -n {0} link set eth0 address $mac && ip -n {0} link set eth0 up && "
                  "ip -n {0} addr add {1}/24 dev eth0",
                  host_, host_address(host)));
  thread_ = std::thread([this] { relay(); });
}

SlowLink::~SlowLink() {
  const std::uint64_t one = 1;
  if (::write(stop_.get(), &one, sizeof(one)) == sizeof(one)) thread_.join();
  near_.reset();
  far_.reset();
  const auto restore =
      fmt::format("ip -n {0} link set cable name eth0 && ip -n {0} link set eth0 up", host_);
  if (std::system(restore.c_str()) != 0) fmt::print(stderr, "failed: {}\n", restore);
}

void SlowLink::relay() {
  std::array<Lane, 2> lanes{Lane(near_.get(), far_.get(), options_),
                            Lane(far_.get(), near_.get(), options_)};
  const auto begin = Clock::now();
  while (true) {
    std::array<pollfd, 3> ready{{{stop_.get(), POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLIN, 0}}};
    const auto now = Clock::now();
    const auto stall_end = stalled_until(options_, begin, now);
    std::optional<Clock::time_point> wake = stall_end;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      lanes[i].take_all(now);
      if (!stall_end) {
        carried_bytes_ += lanes[i].give_due(now);
        const auto due = lanes[i].next_due();
        if (due) wake = std::min(wake.value_or(*due), *due);
      }
      if (lanes[i].has_room()) ready[i + 1].fd = lanes[i].from();
    }
    timespec left{};
    if (wake) {
      const auto wait = std::max(Clock::duration::zero(), *wake - now);
      left = {wait / std::chrono::seconds(1), (wait % std::chrono::seconds(1)).count()};
    }
    if (::ppoll(ready.data(), ready.size(), wake ? &left : nullptr, nullptr) < 0) continue;
    if (ready[0].revents != 0) return;
  }
}

}  // namespace troupe::test
