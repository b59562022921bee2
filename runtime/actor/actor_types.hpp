#pragma once

#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/actor/actor_class.hpp"
#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_type.hpp"
#include "runtime/actor/async/await.hpp"
#include "runtime/actor/async/concurrency_groups.hpp"
#include "runtime/actor/async/method_calls.hpp"
#include "runtime/actor/async/stream_reader.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/base/exception_text.hpp"
#include "runtime/base/result.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/call/encode_answer.hpp"

namespace troupe {

/// An actor of any class, called by method number.
class ActorObject {
 public:
  virtual ~ActorObject() = default;
  /// Decodes the arguments, runs the method, and returns the encoded answer. Errors: the method's
  /// own, corrupt_data for arguments that do not decode, unsupported for an unknown number,
  /// `exception` with its type and text.
  virtual Result<Bytes> run(std::uint16_t method, std::span<const std::byte> arguments,
                            const std::weak_ptr<CallHub>& hub) = 0;
  /// Makes the call of a method that is a coroutine, which is to be started; null for any other.
  /// Runs what the method does before it returns its coroutine, if it is none itself. Errors: those
  /// of decoding the arguments, and of an exception.
  virtual Result<std::unique_ptr<CoroutineCall>> begin(std::uint16_t method,
                                                       std::span<const std::byte> arguments,
                                                       const std::weak_ptr<CallHub>& hub) = 0;
  virtual ClassConcurrency concurrency() const = 0;
  /// The names of the methods, by number.
  virtual std::span<const std::string_view> method_names() const = 0;
};

/// Makes an actor from its encoded construction arguments.
using ActorFactory = std::function<Result<std::unique_ptr<ActorObject>>(
    ActorContext& context, std::span<const std::byte> arguments)>;

namespace actor_detail {

template <class A>
class TypedActor final : public ActorObject {
 public:
  explicit TypedActor(std::unique_ptr<A> actor) : actor_(std::move(actor)) {}

  Result<Bytes> run(std::uint16_t method, std::span<const std::byte> arguments,
                    const std::weak_ptr<CallHub>& hub) override {
    std::optional<Result<Bytes>> answer;
    A::Methods::visit(method, [&]<auto m>() {
      using Return = typename methods_detail::MethodTraits<decltype(m)>::Return;
      try {
        if constexpr (!methods_detail::is_coroutine<Return>) {
          answer.emplace(run_method<m>(arguments, hub));
        }
      } catch (...) {
        answer.emplace(fail(ErrorCode::exception, "method {} of {} threw {}", method,
                            actor_type_of<A>(), current_exception_description()));
      }
    });
    if (answer) return *std::move(answer);
    return fail(ErrorCode::unsupported, "{} has no method number {}", actor_type_of<A>(), method);
  }

  Result<std::unique_ptr<CoroutineCall>> begin(std::uint16_t method,
                                               std::span<const std::byte> arguments,
                                               const std::weak_ptr<CallHub>& hub) override {
    Result<std::unique_ptr<CoroutineCall>> call = std::unique_ptr<CoroutineCall>();
    A::Methods::visit(method, [&]<auto m>() {
      using Return = typename methods_detail::MethodTraits<decltype(m)>::Return;
      try {
        if constexpr (methods_detail::IsAsync<Return>::value) {
          call = async_detail::AsyncCall<A, m>::make(*actor_, arguments, hub);
        } else if constexpr (methods_detail::IsStream<Return>::value) {
          call = async_detail::StreamCall<A, m>::make(*actor_, arguments, hub);
        }
      } catch (...) {
        call = fail(ErrorCode::exception, "method {} of {} threw {}", method, actor_type_of<A>(),
                    current_exception_description());
      }
    });
    return call;
  }

  ClassConcurrency concurrency() const override { return class_concurrency<A>(); }
  std::span<const std::string_view> method_names() const override { return A::Methods::names; }

 private:
  template <auto m>
  Result<Bytes> run_method(std::span<const std::byte> encoded, const std::weak_ptr<CallHub>& hub) {
    using Traits = methods_detail::MethodTraits<decltype(m)>;
    using Return = typename Traits::Return;
    Decoder decoder(encoded, hub);
    typename Traits::Arguments arguments{};
    decoder(arguments);
    TROUPE_CHECK(decoder.finish());
    const auto invoke = [this](auto&... values) -> Return {
      return (actor_.get()->*m)(std::move(values)...);
    };
    return answer_of([&]() -> Return { return std::apply(invoke, arguments); }, hub);
  }

  std::unique_ptr<A> actor_;
};

/// Exceptions pass through: ActorCell turns them into the error of the spawn.
template <class A, class... Args>
Result<std::unique_ptr<A>> make_actor(ActorContext& context, Args&&... args) {
  if constexpr (methods_detail::HasCreate<A>) {
    if constexpr (methods_detail::CreateTraits<decltype(&A::create)>::with_context) {
      return A::create(context, std::forward<Args>(args)...);
    } else {
      return A::create(std::forward<Args>(args)...);
    }
  } else if constexpr (std::constructible_from<A, ActorContext&, Args...>) {
    return std::make_unique<A>(context, std::forward<Args>(args)...);
  } else {
    return std::make_unique<A>(std::forward<Args>(args)...);
  }
}

template <class A>
Result<std::unique_ptr<ActorObject>> make_from_bytes(ActorContext& context,
                                                     std::span<const std::byte> encoded) {
  const auto hub = context.hub();
  Decoder decoder(encoded, hub);
  ConstructionArguments<A> arguments{};
  decoder(arguments);
  TROUPE_CHECK(decoder.finish());
  TROUPE_TRY(
      auto actor,
      std::apply([&](auto&... values) { return make_actor<A>(context, std::move(values)...); },
                 arguments));
  return std::unique_ptr<ActorObject>(std::make_unique<TypedActor<A>>(std::move(actor)));
}

/// Registers A before main wherever this variable is used, by the initialisation of an inline
/// variable; once for a class, as all files share it.
template <class A>
inline const ActorClass registered_class{actor_type_of<A>, typeid(A), make_from_bytes<A>,
                                         __BASE_FILE__};
template <class A>
void register_class() {
  static_cast<void>(&registered_class<A>);
}

}  // namespace actor_detail

/// Registers an actor class in a program that spawns it nowhere: another one does, or a file that
/// is linked only in some builds. Behind the class, in a source file:
///
///     TROUPE_ACTOR(shop::Counter);
///
/// Classes that the program spawns (Cluster::spawn, ActorContext::spawn) register themselves.
#define TROUPE_ACTOR(...)                                                                \
  [[maybe_unused]] static const auto& TROUPE_CONCAT_(troupe_actor_class_, __COUNTER__) = \
      ::troupe::actor_detail::registered_class<__VA_ARGS__>

/// The node of a process.
struct NodePlace {
  std::string name;
  std::string address;  ///< numeric, at which other hosts reach it; empty: none take part
};

/// What a program says of its actors by hand, for troupe::init: classes, which otherwise register
/// themselves (TROUPE_ACTOR), and what their processes do first. A class that is added here comes
/// before others of its name.
class ActorTypes {
 public:
  template <class A>
  void add() {
    factories_[std::string(actor_type_of<A>())] = actor_detail::make_from_bytes<A>;
  }
  /// The class of that name among these and those that registered themselves. Errors: not_found
  /// names the type and the remedy; invalid_argument if several have the name.
  Result<ActorFactory> find(const std::string& type) const;

  /// Those given to troupe::init; none before.
  static const ActorTypes& registered();

  /// `prepare` is called once in each process that hosts actors, before it starts a thread: the
  /// place for what libraries read from the environment.
  void prepare_processes(std::function<void(const NodePlace&)> prepare) {
    prepare_ = std::move(prepare);
  }
  void prepare_process(const NodePlace& place) const {
    if (prepare_) prepare_(place);
  }

 private:
  std::function<void(const NodePlace&)> prepare_;
  std::map<std::string, ActorFactory> factories_;
};

}  // namespace troupe
