#pragma once

#include <chrono>
#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "runtime/actor/actor_type.hpp"
#include "runtime/actor/async/stream_reader.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/call/actor_address.hpp"
#include "runtime/call/call_hub.hpp"
#include "runtime/call/call_promise.hpp"
#include "runtime/call/call_scope.hpp"
#include "runtime/call/future.hpp"
#include "runtime/object/encoded_value.hpp"
#include "runtime/object/reference_scan.hpp"

namespace troupe {

/// Refers to an actor somewhere in the job; does not own it. Copyable, comparable, and encodable:
/// as an argument it gives the receiver a direct connection to the actor, made on its first call.
/// Callable from any thread.
template <class A>
class ActorHandle {
 public:
  ActorHandle() = default;  ///< refers to nothing; calls fail with invalid_argument
  ActorHandle(ActorAddress address, std::weak_ptr<CallHub> hub)
      : ActorHandle(std::make_shared<const ActorAddress>(std::move(address)), std::move(hub)) {}
  ActorHandle(SharedAddress address, std::weak_ptr<CallHub> hub)
      : address_(std::move(address)), hub_(std::move(hub)) {}
  /// The handle of an actor that implements A, an abstract class with a Methods list: the actor is
  /// derived from A, and its own Methods list begins with A's.
  template <std::derived_from<A> Derived>
    requires(!std::same_as<Derived, A>)
  ActorHandle(const ActorHandle<Derived>& actor) : address_(actor.address_), hub_(actor.hub_) {
    static_assert(A::Methods::template is_prefix_of<typename Derived::Methods>(),
                  "the actor's Methods list does not begin with its interface's");
  }

  /// Calls a method of the actor: `handle.call<&Counter::add>(5)`. Returns at once unless the calls
  /// under way use up the credits (see CallHub). Calls that one thread makes arrive in order.
  /// Errors come through the future: the method's own; actor_died with the cause if the actor is
  /// gone; actor_unavailable if it is started again, or its link broke, and the call may not be
  /// made again; timed_out after its deadline; exception with the type and text of what the method
  /// threw; resource_exhausted without credit; cancelled if this process is shutting down.
  template <auto method, class... Args>
    requires(!methods_detail::is_stream<method>)
  auto call(Args&&... args) const {
    return call_with<method>(CallOptions(), std::forward<Args>(args)...);
  }

  /// Calls made through the result have these options: `handle.with({.timeout = 2s, .max_retries =
  /// 3}).call<&Counter::add>(5)`. It refers to this handle.
  class WithOptions {
   public:
    template <auto method, class... Args>
    auto call(Args&&... args) const {
      return actor_.template call_with<method>(options_, std::forward<Args>(args)...);
    }

   private:
    friend class ActorHandle;
    WithOptions(const ActorHandle& actor, const CallOptions& options)
        : actor_(actor), options_(options) {}
    const ActorHandle& actor_;
    const CallOptions options_;
  };
  WithOptions with(const CallOptions& options) const { return {*this, options}; }
  /// Calls a method that returns Stream<T>, and returns the StreamReader<T> of its values. As
  /// above, but errors come through the reader.
  template <auto method, class... Args>
    requires(methods_detail::is_stream<method>)
  auto call(Args&&... args) const {
    using Traits = methods_detail::MethodTraits<decltype(method)>;
    using Reader = StreamReader<typename methods_detail::IsStream<typename Traits::Return>::Item>;
    constexpr std::size_t index = A::Methods::template index_of<method>();
    static_assert(index < A::Methods::count, "the method is not in the actor's Methods list");
    static_assert(sizeof...(Args) == std::tuple_size_v<typename Traits::Arguments>,
                  "wrong number of arguments");
    const auto hub = hub_.lock();
    if (!hub) {
      return Reader(std::make_shared<StreamInbox>(
          fail(id() == 0 ? ErrorCode::invalid_argument : ErrorCode::cancelled,
               "a stream of actor '{}' through an empty handle or after the shutdown of this "
               "process's runtime",
               name())));
    }
    auto arguments = encode_value(typename Traits::Arguments(std::forward<Args>(args)...));
    return Reader(StreamInbox::open(hub, address(), static_cast<std::uint16_t>(index),
                                    std::move(arguments.bytes), std::move(arguments.kept),
                                    Reader::decode_of_items()));
  }

  /// Runs `task` after `delay` on a thread of this process's runtime. The task must not block: its
  /// calls to actors fail where others would wait for credits. It does not run if the runtime ends
  /// before.
  void run_after(std::chrono::milliseconds delay, std::function<void()> task) const {
    if (const auto hub = hub_.lock()) hub->run_after(delay, std::move(task));
  }

  const ActorAddress& address() const {
    static const ActorAddress of_none;
    return address_ ? *address_ : of_none;
  }
  ActorId id() const { return address().id; }
  const std::string& name() const { return address().name; }
  explicit operator bool() const { return id() != 0; }

  friend bool operator==(const ActorHandle& a, const ActorHandle& b) {
    return a.address() == b.address();
  }
  friend auto operator<=>(const ActorHandle& a, const ActorHandle& b) {
    return a.address() <=> b.address();
  }

  template <class Archive>
  void fields(Archive& archive) {
    if constexpr (Archive::decoding) {
      ActorAddress decoded;
      archive(decoded);
      address_ = std::make_shared<const ActorAddress>(std::move(decoded));
      hub_ = archive.hub();
    } else {
      archive(address());
    }
  }

 private:
  template <class>
  friend class ActorHandle;

  template <auto method, class... Args>
  auto call_with(const CallOptions& options, Args&&... args) const {
    using Traits = methods_detail::MethodTraits<decltype(method)>;
    using Answer = typename Traits::Answer;
    constexpr std::size_t index = A::Methods::template index_of<method>();
    static_assert(index < A::Methods::count, "the method is not in the actor's Methods list");
    static_assert(sizeof...(Args) == std::tuple_size_v<typename Traits::Arguments>,
                  "wrong number of arguments");
    auto hub = hub_.lock();
    if (!hub) {
      return Future<Answer>(
          id() == 0
              ? fail(ErrorCode::invalid_argument, "call through an empty actor handle")
              : fail(ErrorCode::cancelled,
                     "call to actor '{}' after the shutdown of this process's runtime", name()));
    }
    auto arguments = encode_value(typename Traits::Arguments(std::forward<Args>(args)...));
    const CallPromise<Answer> promise(
        {.place = {hub->callbacks(), id()},
         .hub = hub_,
         .kept = std::move(arguments.kept),
         .decodes_at_once = may_hold_refs<Answer>(),  // they are registered as they come
         .note_failure = &note_failure<method>});
    promise.set_ticket(hub->call(address(), static_cast<std::uint16_t>(index),
                                 std::move(arguments.bytes), promise.completion(),
                                 terms_of(options, address().max_call_retries)));
    return promise.future();
  }
  template <auto method>
  static void note_failure(CallHub& hub, ErrorCode code) {
    hub.observer()->on_failed(actor_type_of<A>(), method_name<method>, code);
  }

  SharedAddress address_;  ///< null: refers to nothing
  std::weak_ptr<CallHub> hub_;
};

}  // namespace troupe
