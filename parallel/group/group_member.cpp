#include "parallel/group/group_member.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/base/log.hpp"

namespace troupe {
namespace {

/// Limit for all members to come to a communicator; each has been asked at the same time.
constexpr auto connect_timeout = std::chrono::seconds(30);

}  // namespace

GroupMember::~GroupMember() { leave(); }

MemberPlace GroupMember::meet(GroupSeat seat) {
  before_leaving();
  leave();
  seat_ = std::move(seat);
  return {context_.node(), context_.address().incarnation};
}

void GroupMember::leave() {
  watches_.clear();
  abort_group();
  {
    const std::lock_guard lock(mutex_);
    meetings_.clear();
    communicators_.clear();
    is_aborted_ = false;
  }
  if (seat_.epoch == 0) return;
  const Result<void> released = context_.release_shared_memory(region_prefix(seat_));
  if (!released.ok()) log::debug("memory of {}: {}", seat_.group, released.error().message);
}

Result<void> GroupMember::check_met(const GroupEpoch& of) const {
  if (seat_.group == of.group && seat_.epoch == of.epoch) return {};
  return fail(ErrorCode::cancelled, "it has not met with the others in epoch {} of group {}",
              of.epoch, of.group);
}

Result<std::vector<CommunicatorSpec>> GroupMember::communicators() {
  std::vector<int> all(seat_.members.size());
  std::iota(all.begin(), all.end(), 0);
  return std::vector{CommunicatorSpec{.ranks = std::move(all)}};
}

Result<std::vector<CommunicatorListener>> GroupMember::listen(
    const GroupEpoch& of, const std::vector<MemberPlace>& places) {
  TROUPE_CHECK(check_met(of));
  watch_others(places);
  TROUPE_TRY(auto specs, communicators());
  std::vector<CommunicatorListener> listeners;
  for (CommunicatorSpec& spec : specs) {
    if (std::ranges::find(listeners, spec.name, &CommunicatorListener::name) != listeners.end()) {
      return fail(ErrorCode::invalid_argument, "it has two communicators '{}'", spec.name);
    }
    TROUPE_TRY(auto meeting,
               CommunicatorRendezvous::open(context_, seat_, std::move(spec), places));
    listeners.push_back(meeting.listener());
    const std::lock_guard lock(mutex_);
    meetings_.push_back(std::move(meeting));
  }
  return listeners;
}

void GroupMember::watch_others(const std::vector<MemberPlace>& places) {
  for (std::size_t rank = 0; rank < seat_.members.size(); ++rank) {
    if (static_cast<int>(rank) == seat_.rank) continue;
    const auto lost = [this, met = places.at(rank).incarnation](const ActorDown& down) {
      if (down.incarnation < met) return;  // its end is why the group forms anew
      if (down.cause != DownCause::stopped) {
        log::warning("{} is gone: its group {} ends epoch {}", down.name, seat_.group, seat_.epoch);
      }
      abort_group();
    };
    watches_.push_back(context_.watch(seat_.members[rank], lost));
  }
}

Result<void> GroupMember::confirm(const GroupEpoch& of) { return check_met(of); }

Result<void> GroupMember::connect(const GroupEpoch& of,
                                  const std::vector<std::vector<std::string>>& addresses) {
  TROUPE_CHECK(check_met(of));
  Result<void> connected = connect_all(addresses);
  if (!connected.ok()) abort_group();        // the others must not wait for this one
  std::vector<CommunicatorRendezvous> done;  // its end may wait, and must not do so in the lock
  const std::lock_guard lock(mutex_);
  done.swap(meetings_);
  return connected;
}

Result<void> GroupMember::connect_all(const std::vector<std::vector<std::string>>& addresses) {
  if (addresses.size() != meetings_.size()) {
    return fail(ErrorCode::invalid_argument, "addresses of {} communicators, not of {}",
                addresses.size(), meetings_.size());
  }
  const auto check = [this]() -> Result<void> {
    const std::lock_guard lock(mutex_);
    if (!is_aborted_) return {};
    return fail(ErrorCode::cancelled, "another member was lost while the group formed");
  };
  for (std::size_t i = 0; i < meetings_.size(); ++i) {  // this thread alone changes it
    TROUPE_CHECK(check());
    TROUPE_TRY(std::shared_ptr<Collectives> formed,
               meetings_[i].connect(addresses[i], connect_timeout));
    const std::lock_guard lock(mutex_);
    communicators_.emplace(meetings_[i].spec().name, std::move(formed));
  }
  return check();
}

std::shared_ptr<Collectives> GroupMember::collectives(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = communicators_.find(name);
  return found == communicators_.end() ? nullptr : found->second;
}

void GroupMember::abort_group() {
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  for (CommunicatorRendezvous& meeting : meetings_) meeting.abort();
  for (const auto& [name, formed] : communicators_) formed->abort();
}

}  // namespace troupe
