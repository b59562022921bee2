#pragma once

#include <functional>
#include <utility>

#include "runtime/actor/actor_handle.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Calls a method without an answer whose call must not be lost, as nobody would notice: again
/// while the actor takes no calls (resource_exhausted, which a call finds after some seconds). If
/// the actor or this process ends (peer_died, cancelled), whoever watches that goes on; other
/// errors go to `on_failed`. Returns at once; callable from any thread.
template <auto method, class A, class... Args>
void call_until_taken(const ActorHandle<A>& actor,
                      const std::function<void(const Error&)>& on_failed, Args... args) {
  actor.template call<method>(args...).then(
      [actor, on_failed, ... kept = std::move(args)](const Result<void>& taken) {
        if (taken.ok()) return;
        switch (taken.error().code) {
          case ErrorCode::resource_exhausted:
            log::warning("a call is made again: {}", taken.error().message);
            return call_until_taken<method>(actor, on_failed, kept...);
          case ErrorCode::peer_died:
          case ErrorCode::cancelled:
            return log::debug("a call was not taken: {}", taken.error().message);
          default:
            log::error("a call failed: {}", taken.error().message);
            if (on_failed) on_failed(taken.error());
        }
      });
}

}  // namespace troupe
