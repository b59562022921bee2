#include <algorithm>

#include "runtime/object/store_impl.hpp"

namespace troupe {

// What other stores ask, and this one of itself.

namespace {

template <class Request, class Serve>
void decode_and(const IncomingCall& call, Serve&& serve) {
  auto request = decode<Request>(call.arguments);
  if (!request.ok()) return call.answer(std::move(request).error());
  serve(*std::move(request));
}

template <class Reply>
std::function<void(Result<Reply>)> encoded(CallCompletion answer) {
  return [answer = std::move(answer)](const Result<Reply>& reply) {
    if (!reply.ok()) return answer(reply.error());
    answer(encode(*reply));
  };
}

}  // namespace

void StoreImpl::deliver(IncomingCall call) {
  if (is_stopping_) return call.answer(fail(ErrorCode::cancelled, "the process is shutting down"));
  switch (static_cast<StoreMethod>(call.method)) {
    case StoreMethod::notes:
      return decode_and<StoreNotes>(
          call, [&](const StoreNotes& notes) { call.answer(encode(on_notes(notes))); });
    case StoreMethod::locate:
      return decode_and<LocateRequest>(call, [&](LocateRequest request) {
        locate(std::move(request), encoded<Located>(std::move(call.answer)));
      });
    case StoreMethod::open:
      return decode_and<OpenRequest>(call, [&](OpenRequest request) {
        open(std::move(request), encoded<OpenReply>(std::move(call.answer)));
      });
    case StoreMethod::await:
      return decode_and<AwaitRequest>(call, [&](const AwaitRequest& request) {
        await(request, encoded<AwaitReply>(std::move(call.answer)));
      });
    case StoreMethod::make_room:
      return decode_and<std::uint64_t>(call, [&](std::uint64_t bytes) {
        const auto answer = call.answer;
        const bool is_posted = making_room_.post(
            [this, bytes, answer] { answer(encode<std::uint64_t>(make_room(bytes))); });
        if (!is_posted) answer(encode<std::uint64_t>(0));
      });
    case StoreMethod::list:
      return decode_and<ListRequest>(call, [&](const ListRequest& request) {
        call.answer(encode(list(request.after, std::min<std::size_t>(request.limit, 1024))));
      });
    case StoreMethod::offer:
      return decode_and<StoreOffer>(
          call, [&](const StoreOffer& offer) { call.answer(encode(take_offer(offer))); });
    case StoreMethod::cancel:
      return decode_and<ObjectId>(call, [&](const ObjectId& object) {
        cancel_own(object);
        call.answer(Bytes{});
      });
    case StoreMethod::live:
      return;  // the caller learns of this process's end by the end of its connection
  }
  call.answer(fail(ErrorCode::unsupported, "a store has no method {}", call.method));
}

void StoreImpl::locate(LocateRequest request, LocateDone done) {
  Later later;
  Result<Located> located = Located();
  {
    const Lock lock(mutex_);
    if (request.reader != endpoint_) watch_peer(request.reader, later);
    const Number number = request.object.number;
    if (!request.failed.empty()) {
      copies_.remove(number, store_at(request.failed));
      look_for_copies(number, "does not have it any more", later);
    }
    const auto found = owned_.find(number);
    if (is_stopping_) {
      located = fail(ErrorCode::cancelled, "the owner is shutting down");
    } else if (request.object.owner != self_ || found == owned_.end()) {
      located = lost(own_address(number), "has freed it, since nobody had references to it");
    } else if (found->second.state == Owned::State::pending) {
      const auto is_over = std::make_shared<std::atomic<bool>>(false);
      add_waiter(found->second,
                 {is_over, [this, weak = weak_from_this(), request, done = std::move(done)] {
                    if (const auto self = weak.lock()) locate(request, done);
                  }});
      done = nullptr;
    } else if (found->second.error) {
      located = *found->second.error;
    } else {
      located = locate_copy(request, found->second);
    }
  }
  finish(std::move(later));
  if (done) done(std::move(located));
}

Located StoreImpl::locate_copy(const LocateRequest& request, const Owned& owned) {
  Located located;
  located.size = owned.bytes;
  if (owned.small) {
    located.bytes = *owned.small;
    return located;
  }
  const Number number = request.object.number;
  if (const Copy* copy = copies_.find(number, request.locality)) {
    located.kind = Located::Kind::open;
    located.holder = copy->endpoint;
    if (copy->endpoint != endpoint_ || request.reader == endpoint_) return located;
    const HeldObjects::Held* const held = held_.find(request.object);
    const bool is_in_memory = held != nullptr && (held->state == HeldObjects::State::ready ||
                                                  held->state == HeldObjects::State::spilling);
    if (!is_in_memory) return located;
    located.kind = Located::Kind::here;
    located.place = pin_for(request.object, request.reader, *held);
    return located;
  }
  located.kind = Located::Kind::pull;
  located.sources = copies_.complete_copies(number);
  // Readers of different machines begin at different copies.
  if (!located.sources.empty()) {
    const auto first = static_cast<std::ptrdiff_t>(copies_.count(number) % located.sources.size());
    std::ranges::rotate(located.sources, located.sources.begin() + first);
  }
  copies_.add(number, {request.reader, request.locality, false});
  return located;
}

SegmentPlace StoreImpl::pin_for(const ObjectId& object, const std::string& reader,
                                const HeldObjects::Held& held) {
  held_.pin(object, store_at(reader));
  tell_ledger();
  return {options_.keys.name + "-o", held.segment->id(), held.segment->token(), held.bytes};
}

void StoreImpl::open(OpenRequest request, OpenDone done) {
  using State = HeldObjects::State;
  Result<OpenReply> reply = OpenReply();
  Later later;
  bool needs_port = false;
  {
    const Lock lock(mutex_);
    if (request.reader != endpoint_) watch_peer(request.reader, later);
    HeldObjects::Held* const held = held_.find(request.object);
    if (is_stopping_) {
      reply = fail(ErrorCode::cancelled, "the holder is shutting down");
    } else if (held == nullptr && locating_.contains(request.object) && !request.for_pull) {
      locating_[request.object].waiters.emplace_back(
          [this, weak = weak_from_this(), request, done = std::move(done)] {
            if (const auto self = weak.lock()) open(request, done);
          });
      done = nullptr;
    } else if (held == nullptr || (request.for_pull && held->state == State::filling)) {
      reply = fail(ErrorCode::not_found, "the process does not hold the object");
    } else if (request.for_pull) {
      needs_port = true;
    } else if (held->state == State::ready || held->state == State::spilling) {
      reply->place = pin_for(request.object, request.reader, *held);
    } else {
      if (held->state == State::spilled) {
        later.run.emplace_back([this, object = request.object] { begin_restore(object); });
      }
      held->waiters.emplace_back([this, weak = weak_from_this(), request,
                                  done = std::move(done)](const Result<void>& ready) {
        const auto self = weak.lock();
        if (!self) return;
        if (!ready.ok()) return done(ready.error());
        open(request, done);
      });
      done = nullptr;
    }
  }
  finish(std::move(later));
  if (!done) return;
  if (needs_port) {
    const auto port = data_port();
    if (!port.ok()) return done(port.error());
    reply->data_address = options_.address;
    reply->data_port = *port;
  }
  done(std::move(reply));
}

void StoreImpl::add_waiter(Owned& owned, Waiter waiter) {
  // Those whose time is over go now and then, so that repeated waits leave nothing.
  const std::size_t count = owned.waiters.size();
  if (count >= 8 && (count & (count - 1)) == 0) {
    std::erase_if(owned.waiters, [](const Waiter& one) { return one.is_over->load(); });
  }
  owned.waiters.push_back(std::move(waiter));
}

void StoreImpl::await(const AwaitRequest& request, AwaitDone done) {
  AwaitReply reply;
  {
    const Lock lock(mutex_);
    for (const Number number : request.numbers) {
      const auto found = owned_.find(number);
      const bool is_pending = found != owned_.end() && found->second.state == Owned::State::pending;
      if (!is_pending) reply.ready.push_back(number);
    }
    if (reply.ready.empty() && request.timeout_ms > 0 && !is_stopping_) {
      const auto is_over = std::make_shared<std::atomic<bool>>(false);
      const auto shared = std::make_shared<AwaitDone>(std::move(done));
      for (const Number number : request.numbers) {
        add_waiter(owned_.at(number), {is_over, [is_over, shared, number] {
                                         if (is_over->exchange(true)) return;
                                         (*shared)(AwaitReply{{number}});
                                       }});
      }
      hub_->run_after(std::chrono::milliseconds(request.timeout_ms), [is_over, shared] {
        if (!is_over->exchange(true)) (*shared)(AwaitReply());
      });
      return;
    }
  }
  done(std::move(reply));
}

Result<std::uint16_t> StoreImpl::data_port() {
  if (options_.address.empty()) {
    return fail(ErrorCode::unsupported, "no other machine takes part in this cluster");
  }
  const std::lock_guard lock(servers_mutex_);
  if (is_stopping_) return fail(ErrorCode::cancelled, "the holder is shutting down");
  if (!data_server_) {
    TROUPE_TRY(data_server_,
               DataServer::start(options_.address, options_.ports, options_.keys,
                                 [this](const ObjectId& object) { return find_source(object); }));
  }
  return data_server_->port();
}

std::optional<DataSource> StoreImpl::find_source(const ObjectId& object) {
  using State = HeldObjects::State;
  std::shared_ptr<UniqueFd> file;
  std::uint64_t bytes = 0;
  {
    const Lock lock(mutex_);
    const HeldObjects::Held* const held = held_.find(object);
    if (held == nullptr || is_stopping_ || held->state == State::filling) return std::nullopt;
    bytes = held->bytes;
    if (held->state == State::ready || held->state == State::spilling) {
      held_.pin(object, self_);
    } else {
      file = held->file;
    }
  }
  if (file) return DataSource{{}, std::move(file), bytes, nullptr};
  auto data = local_data(object, bytes);
  return DataSource{data.bytes, nullptr, bytes, std::move(data.keep)};
}

}  // namespace troupe
