#include "parallel/group/actor_group.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/log.hpp"
#include "runtime/call/answers.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {
namespace {

/// A name that no other group has: this owner may have formed groups in an earlier life. Empty if
/// there are no random bytes.
std::string unique_name(const std::string& name) {
  std::array<std::byte, 8> unique{};
  if (const auto drawn = random_bytes(unique); !drawn.ok()) {
    log::warning("group {}: {}", name, drawn.error().message);
    return {};
  }
  std::string id = name + "-";
  for (const std::byte byte : unique) id += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return id;
}

using Listeners = std::vector<CommunicatorListener>;

/// The addresses for one member: of each of its communicators those of all its ranks. Errors:
/// invalid_argument if another member has no such communicator.
Result<std::vector<std::vector<std::string>>> addresses_for(const Listeners& own,
                                                            const std::vector<Listeners>& all) {
  std::vector<std::vector<std::string>> addresses;
  for (const CommunicatorListener& communicator : own) {
    auto& of_ranks = addresses.emplace_back();
    for (const int rank : communicator.ranks) {
      const Listeners& others = all[static_cast<std::size_t>(rank)];
      const auto same = std::ranges::find_if(others, [&](const CommunicatorListener& other) {
        return other.name == communicator.name && other.ranks == communicator.ranks;
      });
      if (same == others.end()) {
        return fail(ErrorCode::invalid_argument,
                    "rank {} has no communicator '{}' of the ranks {}, as others have", rank,
                    communicator.name, fmt::join(communicator.ranks, ", "));
      }
      of_ranks.push_back(same->addresses);
    }
  }
  return addresses;
}

}  // namespace

bool is_loss(const Error& error) {
  return is_actor_gone(error.code) || error.code == ErrorCode::cancelled ||
         error.code == ErrorCode::io;
}

ActorGroup::ActorGroup(const std::string& name, std::vector<ActorHandle<GroupMember>> members)
    : id_(unique_name(name)), members_(std::move(members)) {}

void ActorGroup::replace(int rank, ActorHandle<GroupMember> member) {
  members_.at(static_cast<std::size_t>(rank)) = std::move(member);
}

std::vector<std::string> ActorGroup::names() const {
  std::vector<std::string> names;
  for (const auto& member : members_) names.push_back(member.name());
  return names;
}

Result<void> ActorGroup::form(std::chrono::milliseconds timeout, int tries) {
  if (id_.empty()) return fail(ErrorCode::internal, "there are no random bytes for its name");
  Deadline deadline(timeout);
  const bool can_restart = std::ranges::any_of(
      members_, [](const auto& member) { return member.address().is_restartable; });
  for (int left = tries - 1;; --left) {
    ++epoch_;
    const Result<void> formed = form_epoch(deadline);
    if (formed.ok() || left <= 0 || !can_restart || !is_loss(formed.error())) {
      return formed;
    }
    log::info("group {} forms again: {}", id_, formed.error().message);
  }
}

Result<void> ActorGroup::form_epoch(Deadline& deadline) {
  const GroupEpoch epoch{id_, epoch_};
  GroupSeat seat{id_, epoch_};
  for (const auto& member : members_) seat.members.push_back(member.address());
  const std::vector<std::string> who = names();

  std::vector<Future<MemberPlace>> meeting;
  for (const auto& member : members_) {
    meeting.push_back(member.call<&GroupMember::meet>(seat));
    ++seat.rank;
  }
  TROUPE_TRY(const std::vector<MemberPlace> places,
             take_answers<MemberPlace>(meeting, who, deadline.left()));

  std::vector<Future<Listeners>> listening;
  for (const auto& member : members_) {
    listening.push_back(member.call<&GroupMember::listen>(epoch, places));
  }
  TROUPE_TRY(const std::vector<Listeners> listeners,
             take_answers<Listeners>(listening, who, deadline.left()));

  std::vector<Future<void>> confirming;
  for (const auto& member : members_) {
    confirming.push_back(member.call<&GroupMember::confirm>(epoch));
  }
  TROUPE_CHECK(take_answers<void>(confirming, who, deadline.left()));

  std::vector<Future<void>> connecting;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    TROUPE_TRY(auto addresses, addresses_for(listeners[i], listeners));
    connecting.push_back(members_[i].call<&GroupMember::connect>(epoch, std::move(addresses)));
  }
  return take_answers<void>(connecting, who, deadline.left());
}

}  // namespace troupe
