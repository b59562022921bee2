#include <system_error>

#include "runtime/base/log.hpp"
#include "runtime/object/store_impl.hpp"

namespace troupe {

// Pulls: objects that are fetched from other machines.

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
      held_.add(object.id, HeldObjects::State::filling, located.size, *segment);
      if (object.id.owner != self_) watch_peer(object.owner_endpoint, later);
      ++pulls_;
      ++counts_.pulls;
      metrics_.pulls.add();
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
    pulled = pull_in_turn(source, object.id, target);
    if (pulled.ok()) break;
    log::warning("object {} of {} was not pulled from {}: {}", object.id.number, object.owner_name,
                 source, pulled.error().message);
  }
  end_pull(object, pulled);
  const Lock lock(mutex_);
  if (pulled.ok()) {
    counts_.pulled_bytes += target.size();
    metrics_.pulled_bytes.add(static_cast<double>(target.size()));
  }
  --pulls_;
  pulls_ended_.notify_all();
}

/// Waits while the source lives and is busy with others, as long as somebody wants the object.
Result<void> StoreImpl::pull_in_turn(const std::string& source, const ObjectId& object,
                                     std::span<std::byte> target) {
  while (true) {
    TROUPE_TRY(const bool is_pulled, pull_from(source, object, target));
    if (is_pulled) return {};
    log::info("{} is busy sending to others: an object waits for its turn", source);
    const Lock lock(mutex_);
    const HeldObjects::Held* const held = held_.find(object);
    if (held == nullptr || held->is_dropped) {
      return fail(ErrorCode::cancelled, "nobody wants the object any more");
    }
  }
}

Result<bool> StoreImpl::pull_from(const std::string& source, const ObjectId& object,
                                  std::span<std::byte> target) {
  const OpenRequest request{object, endpoint_, true};
  const Promise<OpenReply> opened;
  const Promise<Key> key;
  const std::stop_callback when_stopping(stopping_.get_token(), [&] {
    const Error why = fail(ErrorCode::cancelled, "this process is shutting down");
    opened.complete(why);
    key.complete(why);
  });
  (void)ask<OpenReply>(source, StoreMethod::open, request,
                       [opened](Result<OpenReply> reply) { opened.complete(std::move(reply)); });
  TROUPE_TRY(const auto reply, opened.future().get(options_.pull_timeout));
  const std::string name = source.substr(0, source.find(' '));
  options_.keys.ask(name, [key](Result<Key> answer) { key.complete(std::move(answer)); });
  TROUPE_TRY(const Key pair, key.future().get(options_.pull_timeout));
  return pull_object({name, reply.data_address, reply.data_port}, options_.keys.name, pair, object,
                     target, options_.pull_timeout, is_stopping_);
}

void StoreImpl::end_pull(const ObjectAddress& object, const Result<void>& result) {
  using Kind = StoreNote::Kind;
  // A failure of this process is one of its gets; otherwise they ask the owner again.
  const bool is_own_failure =
      !result.ok() && (result.error().code == ErrorCode::io ||
                       result.error().code == ErrorCode::resource_exhausted);
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
        later.run.emplace_back([this, id = object.id] { drop_held(id); });
      }
    } else if (is_filling) {
      auto freed = held_.remove(object.id);
      if (is_own_failure) {
        for (auto& waiter : std::exchange(freed->waiters, {})) {
          later.run.emplace_back([waiter = std::move(waiter), result] { waiter(result); });
        }
      }
      later.freed.push_back(*std::move(freed));
    }
    const bool is_lent = held == nullptr || is_filling;
    if (is_lent && !is_dropped) {
      const Kind kind = result.ok() ? Kind::copied : Kind::pull_failed;
      if (object.id.owner != self_) {
        note(object.owner_endpoint, {kind, object.id}, later);
      } else if (result.ok()) {
        (void)copies_.complete(object.id.number, self_);
      } else {
        (void)copies_.remove(object.id.number, self_);
        look_for_copies(object.id.number, "does not give it", later);
      }
    }
    tell_ledger();
  }
  finish(std::move(later));
}

}  // namespace troupe
