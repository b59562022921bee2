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
    if (--waits_.at(number).missing > 0) continue;
    later.run.push_back(std::move(take_wait(number)->run));
  }
}

StoreImpl::WaitNumber StoreImpl::await(const AwaitRequest& request, Asker asker, AwaitDone done) {
  Result<AwaitReply> reply = AwaitReply();
  {
    const Lock lock(mutex_);
    std::vector<Number> pending;
    for (const Number number : request.numbers) {
      const auto found = owned_.find(number);
      const bool is_pending = found != owned_.end() && found->second.state == Owned::State::pending;
      (is_pending ? pending : reply->ready).push_back(number);
    }
    const std::size_t wanted = std::min<std::size_t>(request.min_ready, request.numbers.size());
    if (reply->ready.size() < wanted && !is_stopping_) {
      const std::size_t missing = wanted - reply->ready.size();
      const AwaitRequest look{request.numbers, 0, request.reader};
      return add_wait({std::move(pending), std::move(asker),
                       [weak = weak_from_this(), look, done = std::move(done)] {
                         if (const auto self = weak.lock()) (void)self->await(look, {}, done);
                       },
                       missing});
    }
    if (is_stopping_) reply = fail(ErrorCode::cancelled, "this process is shutting down");
  }
  done(std::move(reply));
  return 0;
}

namespace {

/// How many of its objects are to be ready before an owner answers. If it answered for each one, it
/// would be asked for the rest again n times for n objects; if it waited for too many, enough would
/// be ready and nobody would know. So half of what is needed is divided among the owners, and again
/// once half of that has come: for n objects an owner is asked O(log n) times.
class Portions {
 public:
  /// So many objects are needed still. True if all owners are to be asked anew.
  bool divide(std::size_t needed, std::size_t owners) {
    if (portion_ == 1 || (portion_ > 1 && needed >= owners * portion_)) return false;
    portion_ = std::max<std::size_t>(needed / (2 * owners), 1);
    return true;
  }
  /// For an owner that has `own` of the `all` objects that are not ready.
  std::size_t of(std::size_t own, std::size_t all, std::size_t needed) const {
    const std::size_t others = all - own;  // as many as can come without this owner
    const std::size_t least = needed > others ? needed - others : 0;
    return std::min(std::max(portion_, least), own);
  }

 private:
  std::size_t portion_ = 0;  ///< not divided yet
};

}  // namespace

/// A wait for objects of any owners, on the thread that waits.
class StoreImpl::ReadyWait {
 public:
  ReadyWait(StoreImpl& store, std::span<const ObjectSharePtr> shares, std::size_t count)
      : store_(store), shares_(shares), count_(std::min(count, shares.size())) {}

  /// Asks all owners what is ready now, and gives each a moment to answer, whatever the time. True
  /// if these are enough.
  bool look() {
    ask_owners(false);
    Deadline deadline(std::chrono::milliseconds(100));
    return wait_until_answered(deadline, asked_.size());
  }
  /// Waits until an owner has more. True if enough are ready.
  bool wait(Deadline& deadline) {
    ask_owners(true);
    return wait_until_answered(deadline, 1);
  }
  /// Ends the wait.
  ReadyIndices end() {
    ReadyIndices indices;
    {
      const Lock lock(state_->mutex);
      ++state_->round;
      for (std::size_t i = 0; i < shares_.size(); ++i) {
        const bool is_taken = is_ready(shares_[i]) && indices.ready.size() < count_;
        (is_taken ? indices.ready : indices.not_ready).push_back(i);
      }
    }
    for (const auto& [owner, one] : asked_) store_.give_up(one);
    return indices;
  }

 private:
  /// What answers find, also when nobody waits any more.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::set<ObjectId> ready;
    std::map<StoreId, int> failures;
    std::set<StoreId> answered;
    int round = 0;  ///< what was asked in earlier ones has been given up
  };
  struct Pending {
    std::string endpoint;
    std::set<Number> numbers;
  };

  bool is_ready(const ObjectSharePtr& share) const {
    return !share || state_->ready.contains(share->address().id);
  }
  std::size_t count_ready() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(shares_, [this](const auto& share) { return is_ready(share); }));
  }

  bool wait_until_answered(Deadline& deadline, std::size_t owners) {
    Lock lock(state_->mutex);
    (void)wait_until(state_->changed, lock, deadline,
                     [&] { return state_->answered.size() >= owners || count_ready() >= count_; });
    return count_ready() >= count_;
  }

  /// Asks those owners that have answered, or all.
  void ask_owners(bool waits) {
    std::map<StoreId, Pending> pending;
    std::map<StoreId, Asked> given_up;
    std::size_t needed = 0, all = 0;
    int round = 0;
    {
      const Lock lock(state_->mutex);
      const std::size_t ready = count_ready();
      if (ready >= count_) return;
      for (const auto& share : shares_) {
        if (is_ready(share)) continue;
        Pending& of_owner = pending[share->address().id.owner];
        of_owner.endpoint = share->address().owner_endpoint;
        if (of_owner.numbers.insert(share->address().id.number).second) ++all;
      }
      // An object that was given several times counts as often once it is ready.
      const std::size_t repeated = shares_.size() - ready - all;
      needed = count_ - ready > repeated ? count_ - ready - repeated : 1;
      for (const StoreId owner : std::exchange(state_->answered, {})) asked_.erase(owner);
      if (!waits || portions_.divide(needed, pending.size())) {
        given_up.swap(asked_);
        ++state_->round;
      }
      round = state_->round;
    }
    for (const auto& [owner, one] : given_up) store_.give_up(one);
    for (const auto& [owner, one] : pending) {
      if (asked_.contains(owner)) continue;
      const std::size_t own = one.numbers.size();
      ask(owner, one, waits ? portions_.of(own, all, needed) : 0, round);
    }
  }

  void ask(StoreId owner, const Pending& pending, std::size_t min_ready, int round) {
    constexpr int max_failures = 3;
    AwaitRequest request{
        {pending.numbers.begin(), pending.numbers.end()}, min_ready, store_.endpoint_};
    const AwaitDone done = [state = state_, owner, round,
                            numbers = request.numbers](const Result<AwaitReply>& reply) {
      const Lock lock(state->mutex);
      const bool is_given_up = round != state->round;
      if (is_given_up && !reply.ok()) return;
      const bool may_pass = !reply.ok() && reply.error().code == ErrorCode::actor_unavailable &&
                            ++state->failures[owner] < max_failures;
      // After an error get says more.
      if (!may_pass) {
        for (const Number number : reply.ok() ? reply->ready : numbers) {
          state->ready.insert({owner, number});
        }
      }
      if (!is_given_up) state->answered.insert(owner);
      state->changed.notify_all();
    };
    if (owner == store_.self_) {
      asked_[owner] = {.wait = store_.await(request, {store_.self_}, done)};
    } else {
      asked_[owner] = store_.ask<AwaitReply>(pending.endpoint, StoreMethod::await, request, done);
    }
  }

  StoreImpl& store_;
  const std::span<const ObjectSharePtr> shares_;
  const std::size_t count_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::map<StoreId, Asked> asked_;
  Portions portions_;
};

ReadyIndices StoreImpl::wait_ready(std::span<const ObjectSharePtr> shares, std::size_t count,
                                   std::chrono::nanoseconds timeout) {
  Deadline deadline(timeout);
  ReadyWait ready(*this, shares, count);
  bool are_enough = ready.look();
  if (are_enough || deadline.is_over()) return ready.end();
  while (!are_enough && !deadline.is_over()) are_enough = ready.wait(deadline);
  if (!are_enough) (void)ready.look();  // owners have not answered for each one
  return ready.end();
}

}  // namespace troupe
