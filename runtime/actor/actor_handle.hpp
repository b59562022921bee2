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
#include "runtime/call/call_scope.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/call/future.hpp"
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
          fail(address_.id == 0 ? ErrorCode::invalid_argument : ErrorCode::cancelled,
               "a stream of actor '{}' through an empty handle or after the shutdown of this "
               "process's runtime",
               address_.name)));
    }
    const typename Traits::Arguments arguments(std::forward<Args>(args)...);
    Encoder encoder;
    encoder(arguments);
    auto kept = encoder.take_kept();
    return Reader(StreamInbox::open(hub, address_, static_cast<std::uint16_t>(index),
                                    encoder.take(), std::move(kept), Reader::decode_of_items()));
  }

  /// Runs `task` after `delay` on a thread of this process's runtime. The task must not block: its
  /// calls to actors fail where others would wait for credits. It does not run if the runtime ends
  /// before.
  void run_after(std::chrono::milliseconds delay, std::function<void()> task) const {
    if (const auto hub = hub_.lock()) hub->run_after(delay, std::move(task));
  }

  const ActorAddress& address() const { return address_; }
  ActorId id() const { return address_.id; }
  const std::string& name() const { return address_.name; }
  explicit operator bool() const { return address_.id != 0; }

  friend bool operator==(const ActorHandle& a, const ActorHandle& b) {
    return a.address_ == b.address_;
  }
  friend auto operator<=>(const ActorHandle& a, const ActorHandle& b) {
    return a.address_ <=> b.address_;
  }

  template <class Archive>
  void fields(Archive& archive) {
    archive(address_);
    if constexpr (Archive::decoding) hub_ = archive.hub();
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
          address_.id == 0 ? fail(ErrorCode::invalid_argument, "call through an empty actor handle")
                           : fail(ErrorCode::cancelled,
                                  "call to actor '{}' after the shutdown of this process's runtime",
                                  address_.name));
    }
    const Promise<Answer> promise({hub->callbacks(), address_.id});
    const typename Traits::Arguments arguments(std::forward<Args>(args)...);
    Encoder encoder;
    encoder(arguments);
    // References to objects live until the receiver has registered, which is before it answers.
    auto take = [promise, weak = hub_, kept = encoder.take_kept()](Result<Bytes> answer) mutable {
      if (!answer.ok()) {
        note_failure(weak, method_name<method>, answer.error().code);
        return promise.complete(std::move(answer).error());
      }
      if constexpr (std::is_void_v<Answer>) {
        promise.complete(Result<void>());
      } else if (may_hold_refs<Answer>()) {
        // They are registered as they come, not when the answer is taken.
        promise.complete(decode<Answer>(*answer, weak));
      } else {
        promise.complete_encoded(EncodedAnswer<Answer>{*std::move(answer), std::move(weak)});
      }
    };
    promise.set_ticket(hub_,
                       hub->call(address_, static_cast<std::uint16_t>(index), encoder.take(),
                                 std::move(take), terms_of(options, address_.max_call_retries)));
    return promise.future();
  }
  static void note_failure(const std::weak_ptr<CallHub>& hub, std::string_view method,
                           ErrorCode code) {
    const auto calls = hub.lock();
    if (!calls) return;
    calls->observer()->on_failed(actor_type_of<A>(), method, code);
  }

  ActorAddress address_;
  std::weak_ptr<CallHub> hub_;
};

}  // namespace troupe
