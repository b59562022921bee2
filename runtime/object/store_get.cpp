#include <algorithm>

#include "runtime/object/store_impl.hpp"

namespace troupe {

// get.

namespace {

/// How the asking thread and the answer of a call agree on who deals with it.
enum class Turn : int { waiting, answered, given_up };

/// So many links in a row may break before an answer comes by them.
constexpr int max_tries = 3;

/// So often a copy may be gone as it is asked for; the owner is asked at once again, then after
/// rests.
constexpr int max_rounds = 64, rounds_at_once = 4;
constexpr std::chrono::milliseconds rest_between_rounds{100};

/// Whether a holder does not have the object, or is gone.
bool means_gone(ErrorCode code) { return is_actor_gone(code) || code == ErrorCode::not_found; }

}  // namespace

void StoreImpl::give_up(const Asked& asked) {
  if (asked.wait != 0) return end_wait(asked.wait);
  hub_->cancel(asked.call);
}

/// Waits for what `ask` is given a function to answer with. An answer that comes after the deadline
/// goes to `late`.
template <class Reply, class Ask, class Late>
Result<Reply> StoreImpl::wait_for_reply(Deadline& deadline, Ask&& ask, const Late& late) {
  const auto turn = std::make_shared<std::atomic<Turn>>(Turn::waiting);
  const Promise<Reply> promise;
  const Asked asked = ask([turn, promise, late](Result<Reply> reply) {
    Turn expected = Turn::waiting;
    if (turn->compare_exchange_strong(expected, Turn::answered)) {
      promise.complete(std::move(reply));
    } else if (reply.ok()) {
      late(*reply);
    }
  });
  if (!promise.future().wait(deadline.left())) {
    Turn expected = Turn::waiting;
    if (turn->compare_exchange_strong(expected, Turn::given_up)) {
      give_up(asked);
      return fail(ErrorCode::timed_out, "the object is not there in time");
    }
  }
  return promise.future().get(std::chrono::seconds(10));
}

Error StoreImpl::lost(const ObjectAddress& object, const std::string& cause) const {
  return fail(ErrorCode::object_lost, "object {} of {} is lost: {}", object.id.number,
              object.owner_name, cause);
}

/// Asks the owner. The reply may have pinned the object for `request.pin`.
Result<Located> StoreImpl::locate_by(LocateRequest& request, const ObjectAddress& object,
                                     Deadline& deadline) {
  for (int tries = 1;; ++tries) {
    const PinAt pin{object.owner_endpoint, request.pin = next_pin_++};
    // This process is not the one that pulls, if it does not wait any more.
    const auto late = [weak = weak_from_this(), object, pin](const Located& located) {
      const auto self = weak.lock();
      if (!self) return;
      if (located.kind == Located::Kind::here) self->unpin_at(pin);
      if (located.kind != Located::Kind::pull) return;
      self->end_pull(object, fail(ErrorCode::timed_out, "the reader has given up"));
    };
    auto located = wait_for_reply<Located>(
        deadline,
        [&](LocateDone done) {
          if (object.id.owner == self_)
            return Asked{.wait = locate(request, {self_}, std::move(done))};
          return ask<Located>(object.owner_endpoint, StoreMethod::locate, request, std::move(done));
        },
        late);
    if (located.ok() || !is_actor_gone(located.error().code)) return located;
    unpin_at(pin);  // nobody knows whether it was made before the link broke
    if (located.error().code == ErrorCode::actor_unavailable && tries < max_tries) continue;
    return lost(object, fmt::format("its owner is gone: {}", located.error().message));
  }
}

StoreImpl::Locating::Locating(StoreImpl& store, const ObjectId& object)
    : store_(store), object_(object) {
  const Lock lock(store_.mutex_);
  ++store_.locating_[object_].count;
}

StoreImpl::Locating::~Locating() {
  Later later;
  {
    const Lock lock(store_.mutex_);
    const auto found = store_.locating_.find(object_);
    if (--found->second.count == 0) {
      later.run = std::move(found->second.waiters);
      store_.locating_.erase(found);
    }
  }
  store_.finish(std::move(later));
}

Result<std::optional<ObjectData>> StoreImpl::get_at_once(const ObjectSharePtr& share,
                                                         Deadline& deadline, bool& is_held) {
  const ObjectAddress& object = share->address();
  std::string server;
  SegmentAsk ask{.object = object.id, .reader = self_};
  {
    Lock lock(mutex_);
    if (share->small_) return std::optional(ObjectData{*share->small_, share->small_});
    if (auto mapped = share->mapped_.lock()) {
      return std::optional(ObjectData{share->mapped_bytes_, mapped});
    }
    if (object.id.owner == self_) {
      const auto found = owned_.find(object.id.number);
      if (found != owned_.end() && found->second.small) {
        return std::optional(ObjectData{*found->second.small, found->second.small});
      }
    }
    if (const auto* held = held_.find(object.id)) {
      is_held = true;
      if (held->state != HeldObjects::State::ready) return std::optional<ObjectData>();
      const PinNumber pin = next_pin_++;
      held_.pin(object.id, self_, pin);
      tell_ledger();
      const std::uint64_t bytes = held->bytes;
      lock.unlock();
      return std::optional(local_data(object.id, pin, bytes));
    }
    const auto owner = object.is_in_segment ? peers_.find(object.id.owner) : peers_.end();
    if (owner == peers_.end() || owner->second.server.empty()) return std::optional<ObjectData>();
    server = owner->second.server;
    ask.token = owner->second.token;
    ask.pin = next_pin_++;
  }
  const PinAt pin{object.owner_endpoint, ask.pin};
  const auto given = segments_.ask(server, ask, deadline);
  if (given.ok()) {
    TROUPE_TRY(auto data, map_given(share, pin, *given));
    return std::optional(std::move(data));
  }
  if (given.error().code == ErrorCode::not_found) return std::optional<ObjectData>();
  unpin_at(pin);
  if (is_actor_gone(given.error().code) || given.error().code == ErrorCode::timed_out) {
    return std::optional<ObjectData>();
  }
  return given.error();
}

void StoreImpl::rest(Deadline& deadline) {
  Lock lock(mutex_);
  (void)wait_for(pulls_ended_, lock,
                 std::min<Clock::duration>(deadline.left(), rest_between_rounds),
                 [this] { return is_stopping_.load(); });
}

Result<ObjectData> StoreImpl::get_data(const ObjectSharePtr& share,
                                       std::chrono::nanoseconds timeout) {
  auto data = look_for_data(share, timeout);
  if (!data.ok() && data.error().code == ErrorCode::object_lost) metrics_.lost.add();
  return data;
}

Result<ObjectData> StoreImpl::look_for_data(const ObjectSharePtr& share,
                                            std::chrono::nanoseconds timeout) {
  const ObjectAddress& object = share->address();
  Deadline deadline(timeout);
  LocateRequest request{object.id, endpoint_, options_.locality, "", 0};
  for (int round = 0; round < max_rounds; ++round) {
    if (round >= rounds_at_once) rest(deadline);
    if (is_stopping_) return fail(ErrorCode::cancelled, "this process is shutting down");
    bool is_held = false;
    TROUPE_TRY(auto there, get_at_once(share, deadline, is_held));
    if (there) return *std::move(there);
    std::string holder = endpoint_;
    if (!is_held) {
      const Locating asks(*this, object.id);
      TROUPE_TRY(auto located, locate_by(request, object, deadline));
      if (located.kind == Located::Kind::small) {
        auto bytes = std::make_shared<const Bytes>(std::move(located.bytes));
        const Lock lock(mutex_);
        const_cast<ObjectShare&>(*share).small_ = bytes;
        return ObjectData{*bytes, bytes};
      }
      if (located.kind == Located::Kind::here) {
        auto data = map_place(share, {object.owner_endpoint, request.pin}, located.place, deadline);
        if (data.ok() || !means_gone(data.error().code)) return data;
        request.failed = object.owner_endpoint;
        continue;
      }
      if (located.kind == Located::Kind::pull) {
        TROUPE_CHECK(begin_pull(object, located));
      } else {
        holder = located.holder;
      }
    }
    TROUPE_TRY(auto data, open_by(share, holder, deadline));
    if (data) return *std::move(data);
    request.failed = holder;
  }
  return lost(object, "its copies go as fast as they are found");
}

/// Nothing if the holder does not have the object, or is gone.
Result<std::optional<ObjectData>> StoreImpl::open_by(const ObjectSharePtr& share,
                                                     const std::string& holder,
                                                     Deadline& deadline) {
  const bool is_here = holder == endpoint_;
  for (int tries = 1;; ++tries) {
    const OpenRequest request{share->address().id, endpoint_, false, next_pin_++};
    const PinAt pin{holder, request.pin};
    const auto give_back = [weak = weak_from_this(), pin, is_here](const OpenReply&) {
      const auto self = weak.lock();
      if (self) is_here ? self->unpin(pin.number) : self->unpin_at(pin);
    };
    const auto reply = wait_for_reply<OpenReply>(
        deadline,
        [&](OpenDone done) {
          if (!is_here) {
            return ask<OpenReply>(holder, StoreMethod::open, request, std::move(done));
          }
          open(request, {self_}, std::move(done));
          return Asked{};
        },
        give_back);
    if (reply.ok()) {
      if (is_here) return std::optional(local_data(request.object, pin.number, reply->place.bytes));
      auto data = map_place(share, pin, reply->place, deadline);
      if (data.ok()) return std::optional(*std::move(data));
      if (!means_gone(data.error().code)) return data.error();
      return std::optional<ObjectData>();
    }
    if (!means_gone(reply.error().code)) return reply.error();
    if (reply.error().code == ErrorCode::not_found) return std::optional<ObjectData>();
    unpin_at(pin);  // nobody knows whether it was made before the link broke
    if (reply.error().code != ErrorCode::actor_unavailable || tries == max_tries) {
      return std::optional<ObjectData>();
    }
  }
}

/// For an object that is pinned for this process; the pin goes with the data.
ObjectData StoreImpl::local_data(const ObjectId& object, PinNumber number, std::uint64_t bytes) {
  struct Pin {
    std::shared_ptr<Segment> segment;
    std::weak_ptr<StoreImpl> store;
    PinNumber number = 0;
    ~Pin() {
      if (const auto held = store.lock()) held->unpin(number);
    }
  };
  auto pin = std::make_shared<Pin>();
  pin->store = weak_from_this();
  pin->number = number;
  const Lock lock(mutex_);
  pin->segment = held_.find(object)->segment;
  const auto all = pin->segment->bytes();
  return {{all.data(), static_cast<std::size_t>(bytes)}, std::move(pin)};
}

void StoreImpl::unpin(PinNumber pin) { unpin_of(self_, pin); }

void StoreImpl::unpin_of(StoreId reader, PinNumber pin) {
  Later later;
  {
    const Lock lock(mutex_);
    if (auto freed = held_.unpin(reader, pin)) later.freed.push_back(*std::move(freed));
    tell_ledger();
  }
  finish(std::move(later));
}

void StoreImpl::unpin_at(const PinAt& pin) {
  Later later;
  {
    const Lock lock(mutex_);
    note(pin.holder, {StoreNote::Kind::unpin, {}, pin.number}, later);
  }
  finish(std::move(later));
}

Result<ObjectData> StoreImpl::map_place(const ObjectSharePtr& share, const PinAt& pin,
                                        const SegmentPlace& place, Deadline& deadline) {
  {
    const Lock lock(mutex_);
    const auto holder = peers_.find(store_at(pin.holder));
    if (holder != peers_.end()) {
      holder->second.server = place.server;
      holder->second.token = place.token;
    }
  }
  auto given =
      segments_.ask(place.server, {.token = place.token, .segment = place.segment}, deadline);
  if (!given.ok()) {
    unpin_at(pin);
    return given.error();
  }
  given->bytes = place.bytes;
  return map_given(share, pin, *given);
}

Result<ObjectData> StoreImpl::map_given(const ObjectSharePtr& share, const PinAt& pin,
                                        const SegmentClient::Given& given) {
  auto made = MappedSegment::map(given.fd, given.bytes);
  if (!made.ok()) {
    unpin_at(pin);
    return made.error();
  }
  auto mapped = *std::move(made);
  mapped->on_end = [weak = weak_from_this(), pin] {
    if (const auto self = weak.lock()) self->unpin_at(pin);
  };
  const Lock lock(mutex_);
  auto& mutable_share = const_cast<ObjectShare&>(*share);
  mutable_share.mapped_ = mapped;
  mutable_share.mapped_bytes_ = mapped->bytes();
  return ObjectData{mapped->bytes(), mapped};
}

}  // namespace troupe
