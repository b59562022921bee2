#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "runtime/actor/actor_handle.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Takes the name of an actor and the error with which it answered a call.
using OnCallFailed = std::function<void(const std::string& actor, const Error& error)>;

/// Between two tries of a call that is not taken.
inline constexpr std::chrono::milliseconds untaken_pause{100};

/// Calls a method without an answer whose call must not be lost, as nobody would notice: again
/// after a pause while the actor takes no calls (resource_exhausted). If the actor or this process
/// ends or restarts (actor_died, actor_unavailable, cancelled), whoever watches that goes on; other
/// errors go to `on_failed`, which may be empty. Callable from any thread; it waits for credits at
/// most as other calls do, and not in a callback.
template <auto method, class A, class... Args>
void call_until_taken(const ActorHandle<A>& actor, const OnCallFailed& on_failed, Args... args) {
  actor.template call<method>(args...).then(
      [actor, on_failed, ... kept = std::move(args)](const Result<void>& taken) {
        if (taken.ok()) return;
        switch (taken.error().code) {
          case ErrorCode::resource_exhausted:
            log::warning("a call is made again: {}", taken.error().message);
            return actor.run_after(untaken_pause, [actor, on_failed, kept...] {
              call_until_taken<method>(actor, on_failed, kept...);
            });
          case ErrorCode::actor_died:
          case ErrorCode::actor_unavailable:
          case ErrorCode::peer_died:
          case ErrorCode::cancelled:
            return log::debug("a call was not taken: {}", taken.error().message);
          default:
            log::error("a call failed: {}", taken.error().message);
            if (on_failed) on_failed(actor.name(), taken.error());
        }
      });
}

}  // namespace troupe
