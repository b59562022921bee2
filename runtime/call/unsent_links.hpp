#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace troupe {

/// The links of a transport that may have frames which are not with the kernel yet, for its flush.
/// A link that has sent all stays in it until the next flush looks. Links share it with their
/// transport, which they may outlive. `L` derives from std::enable_shared_from_this. Callable from
/// any thread.
template <class L>
class UnsentLinks {
 public:
  /// The link has queued a frame. Not with a lock held that has_sent_all takes.
  void add(L& link) {
    const std::lock_guard lock(mutex_);
    if (!links_.contains(&link)) links_.emplace(&link, link.weak_from_this());
  }
  /// For the link's destructor.
  void remove(const L* link) {
    const std::lock_guard lock(mutex_);
    links_.erase(link);
  }
  /// Those that have not sent all; the others are no longer in it.
  std::vector<std::shared_ptr<L>> take_stock() {
    std::vector<std::shared_ptr<L>> unsent, sent;  // destroyed without the lock
    const std::lock_guard lock(mutex_);
    std::erase_if(links_, [&](const auto& entry) {
      auto link = entry.second.lock();
      if (!link) return true;
      const bool is_over = link->has_sent_all();
      (is_over ? sent : unsent).push_back(std::move(link));
      return is_over;
    });
    return unsent;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const L*, std::weak_ptr<L>> links_;
};

}  // namespace troupe
