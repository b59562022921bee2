#include <algorithm>
#include <system_error>

#include "runtime/base/log.hpp"
#include "runtime/object/store_impl.hpp"

namespace troupe {

// get, pull and wait.

namespace {

/// How the asking thread and the answer of a call agree on who deals with it.
enum class Turn : int { waiting, answered, given_up };

bool means_gone(ErrorCode code) {
  return is_actor_gone(code) || code == ErrorCode::io || code == ErrorCode::not_found;
}

/// Waits for what `ask` is given a function to answer with. An answer that comes after the deadline
/// goes to `late`.
template <class Reply, class Ask, class Late>
Result<Reply> wait_for_reply(Deadline& deadline, Ask&& ask, const Late& late) {
  const auto turn = std::make_shared<std::atomic<Turn>>(Turn::waiting);
  const Promise<Reply> promise;
  ask([turn, promise, late](Result<Reply> reply) {
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
      return fail(ErrorCode::timed_out, "the object is not there in time");
    }
  }
  return promise.future().get(std::chrono::seconds(10));
}

}  // namespace

template <class Reply>
void StoreImpl::ask(const std::string& endpoint, StoreMethod method, Bytes request,
                    std::function<void(Result<Reply>)> done) {
  hub_->call(address_of_store(endpoint), static_cast<std::uint16_t>(method), std::move(request),
             [done = std::move(done)](const Result<Bytes>& answer) {
               if (!answer.ok()) return done(answer.error());
               done(decode<Reply>(*answer));
             });
}

Error StoreImpl::lost(const ObjectAddress& object, const std::string& cause) const {
  return fail(ErrorCode::object_lost, "object {} of {} is lost: {}", object.id.number,
              object.owner_name, cause);
}

Result<Located> StoreImpl::locate_by(const LocateRequest& request, const ObjectAddress& object,
                                     Deadline& deadline) {
  // This process is not the one that pulls, if it does not wait any more.
  const auto late = [this, weak = weak_from_this(), object](const Located& located) {
    const auto self = weak.lock();
    if (!self) return;
    if (located.kind == Located::Kind::here) unpin_at(object.owner_endpoint, object.id);
    if (located.kind != Located::Kind::pull) return;
    end_pull(object, fail(ErrorCode::timed_out, "the reader has given up"));
  };
  auto located = wait_for_reply<Located>(
      deadline,
      [&](LocateDone done) {
        if (object.id.owner == self_) return locate(request, std::move(done));
        ask<Located>(object.owner_endpoint, StoreMethod::locate, encode(request), std::move(done));
      },
      late);
  if (!located.ok() && means_gone(located.error().code)) {
    return lost(object, fmt::format("its owner is gone: {}", located.error().message));
  }
  return located;
}

StoreImpl::Locating::Locating(StoreImpl& store, const ObjectId& object)
    : store_(store), object_(object) {
  const Lock lock(store_.mutex_);
  ++store_.locating_[object_].threads;
}

StoreImpl::Locating::~Locating() {
  Later later;
  {
    const Lock lock(store_.mutex_);
    const auto found = store_.locating_.find(object_);
    if (--found->second.threads == 0) {
      later.run = std::move(found->second.waiters);
      store_.locating_.erase(found);
    }
  }
  store_.finish(std::move(later));
}

Result<ObjectData> StoreImpl::get_data(const ObjectSharePtr& share,
                                       std::chrono::nanoseconds timeout) {
  const ObjectAddress& object = share->address();
  Deadline deadline(timeout);
  LocateRequest request{object.id, endpoint_, options_.locality, ""};
  constexpr int max_rounds = 64;
  for (int round = 0; round < max_rounds; ++round) {
    if (is_stopping_) return fail(ErrorCode::cancelled, "this process is shutting down");
    bool is_held = false;
    {
      const Lock lock(mutex_);
      if (share->small_) return ObjectData{*share->small_, share->small_};
      if (auto mapped = share->mapped_.lock()) return ObjectData{share->mapped_bytes_, mapped};
      if (object.id.owner == self_) {
        const auto found = owned_.find(object.id.number);
        if (found != owned_.end() && found->second.small) {
          return ObjectData{*found->second.small, found->second.small};
        }
      }
      is_held = held_.find(object.id) != nullptr;
    }
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
        auto data = map_place(share, object.owner_endpoint, located.place);
        if (!data.ok()) unpin_at(object.owner_endpoint, object.id);
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
    request.failed = holder == endpoint_ ? "" : holder;
  }
  return lost(object, "its copies go as fast as they are found");
}

/// Nothing if the holder does not have the object, or is gone.
Result<std::optional<ObjectData>> StoreImpl::open_by(const ObjectSharePtr& share,
                                                     const std::string& holder,
                                                     Deadline& deadline) {
  const ObjectId id = share->address().id;
  const OpenRequest request{id, endpoint_, false};
  const auto late = [this, weak = weak_from_this(), holder, id](const OpenReply&) {
    const auto self = weak.lock();
    if (!self) return;
    holder == endpoint_ ? unpin(id) : unpin_at(holder, id);
  };
  const auto reply = wait_for_reply<OpenReply>(
      deadline,
      [&](OpenDone done) {
        if (holder == endpoint_) return open(request, std::move(done));
        ask<OpenReply>(holder, StoreMethod::open, encode(request), std::move(done));
      },
      late);
  if (!reply.ok()) {
    if (!means_gone(reply.error().code)) return reply.error();
    return std::optional<ObjectData>();
  }
  if (holder == endpoint_) return std::optional(local_data(id, reply->place.bytes));
  auto data = map_place(share, holder, reply->place);
  if (data.ok()) return std::optional(*std::move(data));
  late(*reply);
  if (!means_gone(data.error().code)) return data.error();
  return std::optional<ObjectData>();
}

/// For an object that is pinned for this process; the pin goes with the data.
ObjectData StoreImpl::local_data(const ObjectId& object, std::uint64_t bytes) {
  struct Pin {
    std::shared_ptr<Segment> segment;
    std::weak_ptr<StoreImpl> store;
    ObjectId object;
    ~Pin() {
      if (const auto held = store.lock()) held->unpin(object);
    }
  };
  auto pin = std::make_shared<Pin>();
  pin->store = weak_from_this();
  pin->object = object;
  const Lock lock(mutex_);
  pin->segment = held_.find(object)->segment;
  const auto all = pin->segment->bytes();
  return {{all.data(), static_cast<std::size_t>(bytes)}, std::move(pin)};
}

void StoreImpl::unpin(const ObjectId& object) {
  Later later;
  {
    const Lock lock(mutex_);
    if (auto freed = held_.unpin(object, self_)) later.freed.push_back(*std::move(freed));
    tell_ledger();
  }
  finish(std::move(later));
}

void StoreImpl::unpin_at(const std::string& holder, const ObjectId& object) {
  Later later;
  {
    const Lock lock(mutex_);
    note(holder, StoreNote::Kind::unpin, object, later);
  }
  finish(std::move(later));
}

Result<ObjectData> StoreImpl::map_place(const ObjectSharePtr& share, const std::string& holder,
                                        const SegmentPlace& place) {
  TROUPE_TRY(const auto fd, segments_.open(place.server, place.segment, place.token));
  TROUPE_TRY(auto mapped, MappedSegment::map(fd, place.bytes));
  mapped->on_end = [this, weak = weak_from_this(), holder, id = share->address().id] {
    if (const auto self = weak.lock()) unpin_at(holder, id);
  };
  const Lock lock(mutex_);
  auto& mutable_share = const_cast<ObjectShare&>(*share);
  mutable_share.mapped_ = mapped;
  mutable_share.mapped_bytes_ = mapped->bytes();
  return ObjectData{mapped->bytes(), mapped};
}

Result<void> StoreImpl::begin_pull(const ObjectAddress& object, const Located& located) {
  {
    const Lock lock(mutex_);
    if (held_.find(object.id) != nullptr) return {};
  }
  auto segment = take_segment(located.size);
  if (!segment.ok()) {
    end_pull(object, segment.error());
    return segment.error();
  }
  const auto target = (*segment)->bytes().first(located.size);
  Later later;
  {
    const Lock lock(mutex_);
    if (held_.find(object.id) != nullptr) {
      later.freed.push_back({*std::move(segment), false, nullptr, {}});
    } else {
      held_.add(object.id, HeldObjects::State::filling, located.size, object.owner_endpoint,
                *segment);
      if (object.id.owner != self_) watch_peer(object.owner_endpoint, later);
      ++pulls_;
      ++counts_.pulls;
      later.run.emplace_back(
          [this, self = shared_from_this(), object, sources = located.sources, target] {
            try {
              std::thread([this, self, object, sources, target] {
                run_pull(object, sources, target);
              }).detach();  // stop() waits for it
            } catch (const std::system_error& error) {
              end_pull(object, fail(ErrorCode::resource_exhausted,
                                    "no thread to pull an object: {}", error.what()));
              const Lock inner(mutex_);
              --pulls_;
              pulls_ended_.notify_all();
            }
          });
    }
  }
  finish(std::move(later));
  return {};
}

void StoreImpl::run_pull(const ObjectAddress& object, const std::vector<std::string>& sources,
                         std::span<std::byte> target) {
  Result<void> pulled = fail(ErrorCode::not_found, "no process has a copy to pull");
  for (const std::string& source : sources) {
    pulled = pull_from(source, object.id, target);
    if (pulled.ok()) break;
    log::warning("object {} of {} was not pulled from {}: {}", object.id.number, object.owner_name,
                 source, pulled.error().message);
  }
  end_pull(object, pulled);
  const Lock lock(mutex_);
  if (pulled.ok()) counts_.pulled_bytes += target.size();
  --pulls_;
  pulls_ended_.notify_all();
}

Result<void> StoreImpl::pull_from(const std::string& source, const ObjectId& object,
                                  std::span<std::byte> target) {
  Deadline deadline(options_.pull_timeout);
  const OpenRequest request{object, endpoint_, true};
  TROUPE_TRY(const auto reply, wait_for_reply<OpenReply>(
                                   deadline,
                                   [&](OpenDone done) {
                                     ask<OpenReply>(source, StoreMethod::open, encode(request),
                                                    std::move(done));
                                   },
                                   [](const OpenReply&) {}));
  const std::string name = source.substr(0, source.find(' '));
  const Promise<Key> key;
  options_.keys.ask(name, [key](Result<Key> answer) { key.complete(std::move(answer)); });
  TROUPE_TRY(const Key pair, key.future().get(deadline.left()));
  return pull_object({name, reply.data_address, reply.data_port}, options_.keys.name, pair, object,
                     target, options_.pull_timeout, is_stopping_);
}

void StoreImpl::end_pull(const ObjectAddress& object, const Result<void>& result) {
  using Kind = StoreNote::Kind;
  Later later;
  {
    const Lock lock(mutex_);
    HeldObjects::Held* const held = held_.find(object.id);
    const bool is_filling = held != nullptr && held->state == HeldObjects::State::filling;
    const bool is_dropped = is_filling && held->is_dropped;
    if (is_filling && result.ok()) {
      for (auto& waiter : held_.set_ready(object.id)) {
        later.run.emplace_back([waiter = std::move(waiter)] { waiter({}); });
      }
      if (is_dropped) {
        later.run.emplace_back([this, id = object.id] {
          Later after;
          {
            const Lock inner(mutex_);
            if (auto freed = held_.drop(id)) after.freed.push_back(*std::move(freed));
          }
          finish(std::move(after));
        });
      }
    } else if (is_filling) {
      if (auto freed = held_.remove(object.id)) later.freed.push_back(*std::move(freed));
    }
    const bool is_lent = held == nullptr || is_filling;
    if (is_lent && !is_dropped) {
      const Kind kind = result.ok() ? Kind::copied : Kind::pull_failed;
      if (object.id.owner != self_) {
        note(object.owner_endpoint, kind, object.id, later);
      } else if (result.ok()) {
        (void)copies_.complete(object.id.number, self_);
      } else {
        copies_.remove(object.id.number, self_);
        look_for_copies(object.id.number, "does not give it", later);
      }
    }
    tell_ledger();
  }
  finish(std::move(later));
}

ReadyIndices StoreImpl::wait_ready(std::span<const ObjectSharePtr> shares, std::size_t count,
                                   std::chrono::nanoseconds timeout) {
  struct Waiting {
    std::mutex mutex;
    std::condition_variable changed;
    std::set<ObjectId> ready;
    std::set<StoreId> asked;
  };
  const auto waiting = std::make_shared<Waiting>();
  Deadline deadline(timeout);
  count = std::min(count, shares.size());
  const auto is_ready = [&](const ObjectSharePtr& share) {
    return !share || waiting->ready.contains(share->address().id);
  };
  bool is_first = true;
  while (true) {
    const auto left = is_first ? std::chrono::nanoseconds(timeout) : deadline.left();
    std::map<StoreId, std::pair<std::string, AwaitRequest>> asks;
    {
      Lock lock(waiting->mutex);
      const auto ready = static_cast<std::size_t>(std::ranges::count_if(shares, is_ready));
      if (ready >= count || (!is_first && left <= left.zero())) break;
      for (const auto& share : shares) {
        if (is_ready(share)) continue;
        const ObjectAddress& object = share->address();
        if (waiting->asked.contains(object.id.owner)) continue;
        auto& [endpoint, request] = asks[object.id.owner];
        endpoint = object.owner_endpoint;
        request.numbers.push_back(object.id.number);
      }
      for (const auto& [owner, one] : asks) waiting->asked.insert(owner);
    }
    for (auto& [owner, one] : asks) {
      auto& [endpoint, request] = one;
      request.reader = endpoint_;
      request.timeout_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
      const auto done = [waiting, owner = owner,
                         numbers = request.numbers](const Result<AwaitReply>& reply) {
        const Lock lock(waiting->mutex);
        waiting->asked.erase(owner);
        // After an error get says more.
        for (const Number number : reply.ok() ? reply->ready : numbers) {
          waiting->ready.insert({owner, number});
        }
        waiting->changed.notify_all();
      };
      if (owner == self_) {
        await(request, done);
      } else {
        ask<AwaitReply>(endpoint, StoreMethod::await, encode(request), done);
      }
    }
    Lock lock(waiting->mutex);
    // The first answers come at once, whatever the time.
    Deadline first(std::max<std::chrono::nanoseconds>(left, std::chrono::milliseconds(100)));
    const auto before = waiting->ready.size();
    (void)wait_until(waiting->changed, lock, is_first ? first : deadline,
                     [&] { return waiting->ready.size() > before || waiting->asked.empty(); });
    is_first = false;
  }
  const Lock lock(waiting->mutex);
  ReadyIndices indices;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const bool is_taken = is_ready(shares[i]) && indices.ready.size() < count;
    (is_taken ? indices.ready : indices.not_ready).push_back(i);
  }
  return indices;
}

}  // namespace troupe
