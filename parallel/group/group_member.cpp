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

Result<void> GroupMember::check_met() const {
  if (seat_.epoch > 0) return {};
  return fail(ErrorCode::cancelled, "it was started anew while its group formed");
}

Result<std::vector<CommunicatorSpec>> GroupMember::communicators() {
  std::vector<int> all(seat_.members.size());
  std::iota(all.begin(), all.end(), 0);
  return std::vector{CommunicatorSpec{.ranks = std::move(all)}};
}

Result<std::vector<CommunicatorListener>> GroupMember::listen(
    const std::vector<MemberPlace>& places) {
  TROUPE_CHECK(check_met());
  TROUPE_TRY(auto specs, communicators());
  std::vector<CommunicatorListener> listeners;
  for (CommunicatorSpec& spec : specs) {
    watch_next(spec, places);
    TROUPE_TRY(auto meeting,
               CommunicatorRendezvous::open(context_, seat_, std::move(spec), places));
    listeners.push_back(meeting.listener());
    const std::lock_guard lock(mutex_);
    meetings_.push_back(std::move(meeting));
  }
  return listeners;
}

void GroupMember::watch_next(const CommunicatorSpec& spec, const std::vector<MemberPlace>& places) {
  const auto own = std::ranges::find(spec.ranks, seat_.rank);
  if (own == spec.ranks.end() || spec.ranks.size() < 2) return;
  const int next = own + 1 == spec.ranks.end() ? spec.ranks.front() : *(own + 1);
  if (watches_.contains(next)) return;
  const auto index = static_cast<std::size_t>(next);
  const auto lost = [this, met = places.at(index).incarnation](const ActorDown& down) {
    if (down.incarnation < met) return;  // its end is why the group forms anew
    log::warning("{} is gone: its group {} ends epoch {}", down.name, seat_.group, seat_.epoch);
    abort_group();
  };
  watches_.emplace(next, context_.watch(seat_.members.at(index), lost));
}

Result<void> GroupMember::connect(const std::vector<std::vector<std::string>>& addresses) {
  TROUPE_CHECK(check_met());
  if (addresses.size() != meetings_.size()) {
    return fail(ErrorCode::invalid_argument, "addresses of {} communicators, not of {}",
                addresses.size(), meetings_.size());
  }
  for (std::size_t i = 0; i < meetings_.size(); ++i) {  // this thread alone changes it
    TROUPE_TRY(std::shared_ptr<Collectives> formed,
               meetings_[i].connect(addresses[i], connect_timeout));
    const std::lock_guard lock(mutex_);
    communicators_.emplace(meetings_[i].spec().name, std::move(formed));
  }
  const std::lock_guard lock(mutex_);
  meetings_.clear();
  if (!is_aborted_) return {};
  for (const auto& [name, formed] : communicators_) formed->abort();
  return fail(ErrorCode::cancelled, "another member was lost while the group formed");
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
