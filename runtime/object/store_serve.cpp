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
  const auto asker = [&](const std::string& reader) {
    return Asker{store_at(reader), call.caller};
  };
  const auto end_with = [&](WaitNumber wait) {
    if (wait == 0) return;
    call.cancel.state()->set_target_id(wait);
    if (call.cancel.is_cancelled()) end_wait(wait);
  };
  switch (static_cast<StoreMethod>(call.method)) {
    case StoreMethod::notes:
      return decode_and<StoreNotes>(
          call, [&](const StoreNotes& notes) { call.answer(encode(on_notes(notes))); });
    case StoreMethod::locate:
      return decode_and<LocateRequest>(call, [&](LocateRequest request) {
        auto from = asker(request.reader);
        end_with(locate(std::move(request), std::move(from), encoded<Located>(call.answer)));
      });
    case StoreMethod::open:
      return decode_and<OpenRequest>(call, [&](OpenRequest request) {
        auto from = asker(request.reader);
        open(std::move(request), std::move(from), encoded<OpenReply>(call.answer));
      });
    case StoreMethod::await:
      return decode_and<AwaitRequest>(call, [&](const AwaitRequest& request) {
        end_with(await(request, asker(request.reader), encoded<AwaitReply>(call.answer)));
      });
    case StoreMethod::make_room:
      return decode_and<std::uint64_t>(call, [&](std::uint64_t bytes) {
        const auto answer = call.answer;
        const bool is_posted = making_room_.post(
            [this, bytes, answer] { answer(encode<std::uint64_t>(make_room(bytes))); });
        if (!is_posted) answer(encode<std::uint64_t>(0));
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
    case StoreMethod::are_you_there:
      return call.answer(Bytes());
  }
  call.answer(fail(ErrorCode::unsupported, "a store has no method {}", call.method));
}

void StoreImpl::forget_copy(const LocateRequest& request, Later& later) {
  const Number number = request.object.number;
  const StoreId holder = store_at(request.failed);
  // What this process holds it knows best.
  if (holder == self_ && held_.find(request.object) != nullptr) return;
  if (!copies_.remove(number, holder)) return;
  if (holder != self_) {
    note(request.failed, {StoreNote::Kind::drop_copy, request.object}, later);
  }
  look_for_copies(number, "does not have it any more", later);
}

void StoreImpl::drop(const CancelToken& cancelled) { end_wait(cancelled.state()->target_id()); }

StoreImpl::WaitNumber StoreImpl::locate(LocateRequest request, Asker asker, LocateDone done) {
  Later later;
  Result<Located> located = Located();
  WaitNumber wait = 0;
  {
    const Lock lock(mutex_);
    if (request.reader != endpoint_) watch_peer(request.reader, later);
    const Number number = request.object.number;
    if (!request.failed.empty()) forget_copy(request, later);
    const auto found = owned_.find(number);
    if (is_stopping_) {
      located = fail(ErrorCode::cancelled, "the owner is shutting down");
    } else if (request.object.owner != self_ || found == owned_.end()) {
      located = lost(own_address(number), "has freed it, since nobody had references to it");
    } else if (found->second.state == Owned::State::pending) {
      wait = add_wait(
          {{number}, asker, [weak = weak_from_this(), request, asker, done = std::move(done)] {
             const auto self = weak.lock();
             if (self && !asker.is_gone()) (void)self->locate(request, asker, done);
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
  return wait;
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
    located.place = pin_for(request.object, store_at(request.reader), request.pin, *held);
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

SegmentPlace StoreImpl::pin_for(const ObjectId& object, StoreId reader, PinNumber pin,
                                const HeldObjects::Held& held) {
  held_.pin(object, reader, pin);
  tell_ledger();
  return {segment_server_->name(), segment_server_->token(), held.segment->id(), held.bytes};
}

std::optional<SegmentServer::Store::Pinned> StoreImpl::pin_at_once(const SegmentAsk& ask) {
  using State = HeldObjects::State;
  const Lock lock(mutex_);
  // The ends of readers that are watched are seen.
  if (is_stopping_ || ask.object.owner != self_ || !peers_.contains(ask.reader))
    return std::nullopt;
  const HeldObjects::Held* const held = held_.find(ask.object);
  const bool is_there = held != nullptr && !held->is_dropped &&
                        (held->state == State::ready || held->state == State::spilling);
  if (!is_there) return std::nullopt;
  held_.pin(ask.object, ask.reader, ask.pin);
  tell_ledger();
  return SegmentServer::Store::Pinned{held->segment, held->bytes};
}

void StoreImpl::open(OpenRequest request, Asker asker, OpenDone done) {
  using State = HeldObjects::State;
  Result<OpenReply> reply = OpenReply();
  Later later;
  bool needs_port = false;
  const auto again = [weak = weak_from_this(), request, asker](const OpenDone& then) {
    const auto self = weak.lock();
    if (self && !asker.is_gone()) self->open(request, asker, then);
  };
  {
    const Lock lock(mutex_);
    if (request.reader != endpoint_) watch_peer(request.reader, later);
    HeldObjects::Held* const held = held_.find(request.object);
    if (is_stopping_) {
      reply = fail(ErrorCode::cancelled, "the holder is shutting down");
    } else if (held == nullptr && locating_.contains(request.object) && !request.for_pull) {
      locating_[request.object].waiters.emplace_back(
          [again, done = std::move(done)] { again(done); });
      done = nullptr;
    } else if (held == nullptr || (request.for_pull && held->state == State::filling)) {
      reply = fail(ErrorCode::not_found, "the process does not hold the object");
    } else if (request.for_pull) {
      needs_port = true;
    } else if (held->state == State::ready || held->state == State::spilling) {
      reply->place = pin_for(request.object, store_at(request.reader), request.pin, *held);
    } else {
      if (held->state == State::spilled) {
        later.run.emplace_back([this, object = request.object] { begin_restore(object); });
      }
      held->waiters.emplace_back([again, done = std::move(done)](const Result<void>& ready) {
        ready.ok() ? again(done) : done(ready.error());
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
  const PinNumber pin = next_pin_++;
  {
    const Lock lock(mutex_);
    const HeldObjects::Held* const held = held_.find(object);
    if (held == nullptr || is_stopping_ || held->state == State::filling) return std::nullopt;
    bytes = held->bytes;
    if (held->state == State::ready || held->state == State::spilling) {
      held_.pin(object, self_, pin);
    } else {
      file = held->file;
    }
  }
  if (file) return DataSource{{}, std::move(file), bytes, nullptr};
  auto data = local_data(object, pin, bytes);
  return DataSource{data.bytes, nullptr, bytes, std::move(data.keep)};
}

}  // namespace troupe
