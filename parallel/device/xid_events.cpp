#include "parallel/device/xid_events.hpp"

#include <array>
#include <cerrno>
#include <charconv>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace troupe {
namespace {

constexpr std::size_t most_told = 3;

/// The text until `end`, which it is without then; all of it if there is none.
std::string_view take_until(std::string_view& text, std::string_view end) {
  const auto at = text.find(end);
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at == text.npos ? text.size() : at + end.size());
  return taken;
}

/// The whole log. A read gives one record; one that was overwritten meanwhile is skipped (EPIPE).
std::string read_kernel_log() {
  std::string log;
  const int file = ::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return log;
  std::array<char, 8192> record{};
  for (;;) {
    const ssize_t count = ::read(file, record.data(), record.size());
    if (count < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (count <= 0) break;
    log.append(record.data(), static_cast<std::size_t>(count));
  }
  ::close(file);
  return log;
}

}  // namespace

std::vector<XidEvent> xid_events_in(std::string_view log, std::string_view pci_address) {
  const std::string begin =
      fmt::format("NVRM: Xid (PCI:{}): ", pci_address.substr(0, pci_address.rfind('.')));
  std::vector<XidEvent> events;
  while (!log.empty()) {
    std::string_view message = take_until(log, "\n");
    std::string_view head = take_until(message, ";");  // priority,number,microseconds,flags
    if (!message.starts_with(begin)) continue;
    message.remove_prefix(begin.size());
    take_until(head, ",");
    take_until(head, ",");
    std::int64_t at = 0;
    std::from_chars(head.data(), head.data() + head.size(), at);
    const std::string_view number = take_until(message, ", ");
    events.push_back({std::chrono::microseconds(at), fmt::format("Xid {}: {}", number, message)});
  }
  return events;
}

std::string latest_xid_events(std::string_view pci_address,
                              std::chrono::steady_clock::time_point since) {
  std::vector<std::string> told;
  for (const XidEvent& event : xid_events_in(read_kernel_log(), pci_address)) {
    if (event.at >= since.time_since_epoch()) told.push_back(event.text);
  }
  if (told.size() > most_told) told.erase(told.begin(), told.end() - most_told);
  return fmt::format("{}", fmt::join(told, "; "));
}

}  // namespace troupe
