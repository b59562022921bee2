#include "runtime/process/strangers.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {

std::list<Strangers::Entry>::iterator Strangers::find(int fd) {
  return std::find_if(entries_.begin(), entries_.end(),
                      [fd](const Entry& entry) { return entry.fd == fd; });
}

std::optional<int> Strangers::add(int fd, Clock::time_point now) {
  std::optional<int> dropped;
  if (entries_.size() >= most_ && !entries_.empty()) {
    auto victim = std::find_if(entries_.begin(), entries_.end(),
                               [](const Entry& entry) { return !entry.speaks; });
    if (victim == entries_.end()) victim = entries_.begin();
    dropped = victim->fd;
    entries_.erase(victim);
  }
  entries_.push_back({fd, now});
  return dropped;
}

void Strangers::mark_speaking(int fd) {
  if (const auto found = find(fd); found != entries_.end()) found->speaks = true;
}

void Strangers::remove(int fd) {
  if (const auto found = find(fd); found != entries_.end()) entries_.erase(found);
}

std::optional<int> Strangers::overdue(Clock::time_point now) const {
  if (entries_.empty() || now < due()) return std::nullopt;
  return entries_.front().fd;
}

Strangers::Clock::time_point Strangers::due() const {
  return entries_.empty() ? Clock::time_point::max() : entries_.front().since + patience_;
}

}  // namespace troupe
