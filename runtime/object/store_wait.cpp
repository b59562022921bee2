#include <algorithm>
#include <bit>

#include "runtime/object/store_impl.hpp"

namespace troupe {

// Waits for objects that are not there yet.

StoreImpl::WaitNumber StoreImpl::add_wait(Wait wait) {
  // Nobody says that a link has broken: what waits for an answer by it goes now and then.
  if (waits_.size() >= 64 && std::has_single_bit(waits_.size())) {
    std::vector<WaitNumber> over;
    for (const auto& [number, one] : waits_) {
      if (one.asker.is_gone()) over.push_back(number);
    }
    for (const WaitNumber number : over) (void)take_wait(number);
  }
  const WaitNumber number = next_wait_++;
  for (const Number object : wait.numbers) owned_.at(object).waits.insert(number);
  waits_.emplace(number, std::move(wait));
  return number;
}

std::optional<StoreImpl::Wait> StoreImpl::take_wait(WaitNumber number) {
  auto wait = waits_.extract(number);
  if (wait.empty()) return std::nullopt;
  for (const Number object : wait.mapped().numbers) {
    if (const auto owned = owned_.find(object); owned != owned_.end()) {
      owned->second.waits.erase(number);
    }
  }
  return std::move(wait.mapped());
}

void StoreImpl::end_wait(WaitNumber number) {
  std::optional<Wait> ended;  // destroyed without the lock
  const Lock lock(mutex_);
  ended = take_wait(number);
}

void StoreImpl::wake_waits(Owned& owned, Later& later) {
  for (const WaitNumber number : std::exchange(owned.waits, {})) {
    if (auto wait = take_wait(number)) later.run.push_back(std::move(wait->run));
  }
}

StoreImpl::WaitNumber StoreImpl::await(const AwaitRequest& request, Asker asker, AwaitDone done) {
  AwaitReply reply;
  {
    const Lock lock(mutex_);
    for (const Number number : request.numbers) {
      const auto found = owned_.find(number);
      const bool is_pending = found != owned_.end() && found->second.state == Owned::State::pending;
      if (!is_pending) reply.ready.push_back(number);
    }
    if (reply.ready.empty() && request.waits && !is_stopping_) {
      const AwaitRequest look{request.numbers, false, request.reader};
      return add_wait({request.numbers, std::move(asker),
                       [weak = weak_from_this(), look, done = std::move(done)] {
                         if (const auto self = weak.lock()) (void)self->await(look, {}, done);
                       }});
    }
  }
  done(std::move(reply));
  return 0;
}

ReadyIndices StoreImpl::wait_ready(std::span<const ObjectSharePtr> shares, std::size_t count,
                                   std::chrono::nanoseconds timeout) {
  struct Waiting {
    std::mutex mutex;
    std::condition_variable changed;
    std::set<ObjectId> ready;
    std::map<StoreId, int> failures;
    std::set<StoreId> answered;
  };
  constexpr int max_failures = 3;
  const auto waiting = std::make_shared<Waiting>();
  std::map<StoreId, Asked> asked;
  Deadline deadline(timeout);
  count = std::min(count, shares.size());
  const auto is_ready = [&](const ObjectSharePtr& share) {
    return !share || waiting->ready.contains(share->address().id);
  };
  const auto are_enough = [&] {
    return static_cast<std::size_t>(std::ranges::count_if(shares, is_ready)) >= count;
  };
  // At first all owners are asked what is ready now, whatever the time; then they are waited for.
  for (bool waits = false;; waits = true) {
    std::map<StoreId, std::pair<std::string, AwaitRequest>> asks;
    {
      const Lock lock(waiting->mutex);
      if (are_enough() || (waits && deadline.is_over())) break;
      for (const StoreId owner : std::exchange(waiting->answered, {})) asked.erase(owner);
      for (const auto& share : shares) {
        if (is_ready(share) || asked.contains(share->address().id.owner)) continue;
        auto& [endpoint, request] = asks[share->address().id.owner];
        endpoint = share->address().owner_endpoint;
        request.numbers.push_back(share->address().id.number);
        request.waits = waits;
        request.reader = endpoint_;
      }
    }
    for (auto& [owner, one] : asks) {
      auto& [endpoint, request] = one;
      const AwaitDone done = [waiting, owner = owner,
                              numbers = request.numbers](const Result<AwaitReply>& reply) {
        const Lock lock(waiting->mutex);
        waiting->answered.insert(owner);
        const bool may_pass = !reply.ok() && reply.error().code == ErrorCode::actor_unavailable &&
                              ++waiting->failures[owner] < max_failures;
        // After an error get says more.
        if (!may_pass) {
          for (const Number number : reply.ok() ? reply->ready : numbers) {
            waiting->ready.insert({owner, number});
          }
        }
        waiting->changed.notify_all();
      };
      if (owner == self_) {
        asked[owner] = {.wait = await(request, {self_}, done)};
      } else {
        asked[owner] = ask<AwaitReply>(endpoint, StoreMethod::await, encode(request), done);
      }
    }
    Lock lock(waiting->mutex);
    Deadline first(std::max<std::chrono::nanoseconds>(timeout, std::chrono::milliseconds(100)));
    (void)wait_until(waiting->changed, lock, waits ? deadline : first, [&] {
      const bool is_answered =
          waits ? !waiting->answered.empty() : waiting->answered.size() == asked.size();
      return is_answered || are_enough();
    });
  }
  ReadyIndices indices;
  {
    const Lock lock(waiting->mutex);
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const bool is_taken = is_ready(shares[i]) && indices.ready.size() < count;
      (is_taken ? indices.ready : indices.not_ready).push_back(i);
    }
  }
  for (const auto& [owner, one] : asked) give_up(one);  // they are answered with an error then
  return indices;
}

}  // namespace troupe
