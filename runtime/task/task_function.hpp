#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "runtime/base/exception_text.hpp"
#include "runtime/base/result.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/call/encode_answer.hpp"

namespace troupe {

class ActorContext;

/// Identifies a function that can be run as a task, in all processes of one program: the hash of
/// its name and type.
using TaskFunctionId = std::uint64_t;

/// Decodes the arguments, runs the function and returns the encoded answer. Errors: the function's
/// own, corrupt_data for arguments that do not decode; `exception` with type and text.
using RunTask = Result<Bytes> (*)(ActorContext& context, std::span<const std::byte> arguments,
                                  const std::weak_ptr<CallHub>& hub);

/// The functions that this program can run as tasks. Each use of `submit<&function>` adds its own
/// before main; only read afterwards, from any thread.
class TaskFunctions {
 public:
  /// Returns the id of this function. A second, different function of one name is kept for check().
  static TaskFunctionId add(std::string_view name, std::string_view type, RunTask run);
  /// Errors: not_found.
  static Result<RunTask> find(TaskFunctionId id);
  /// The name of a function, for messages; "" for an unknown one.
  static std::string_view name_of(TaskFunctionId id);
  /// invalid_argument names the functions of different files that have the same name and type:
  /// processes could not tell them apart.
  static Result<void> check();
};

namespace task_detail {

template <class F>
struct FunctionTraits;
template <class R, class... Args>
struct FunctionTraits<R (*)(Args...)> {
  static constexpr bool with_context = false;
  using Return = R;
  using Arguments = std::tuple<std::decay_t<Args>...>;
};
template <class R, class... Args>
struct FunctionTraits<R (*)(ActorContext&, Args...)> {
  static constexpr bool with_context = true;
  using Return = R;
  using Arguments = std::tuple<std::decay_t<Args>...>;
};
/// "app::add", out of what the compiler says of this template; also for types.
template <auto function>
constexpr std::string_view function_name() {
  std::string_view text = __PRETTY_FUNCTION__;
  constexpr std::string_view before = "function = ";
  text.remove_prefix(text.find(before) + before.size());
  return text.substr(0, text.rfind("; "));
}
template <class F>
constexpr std::string_view type_name() {
  std::string_view text = __PRETTY_FUNCTION__;
  constexpr std::string_view before = "F = ";
  text.remove_prefix(text.find(before) + before.size());
  return text.substr(0, text.rfind("; "));
}

}  // namespace task_detail

/// A plain function as a task: `R f(args...)` or `R f(ActorContext&, args...)`, where R is an
/// encodable type, a Result of one, or void (see runtime/call/codec.hpp).
template <auto function>
class TaskFunction {
  using Traits = task_detail::FunctionTraits<decltype(function)>;

 public:
  using Return = typename Traits::Return;
  using Answer = typename AnswerOf<Return>::Type;
  using Arguments = typename Traits::Arguments;

  static Result<Bytes> run(ActorContext& context, std::span<const std::byte> encoded,
                           const std::weak_ptr<CallHub>& hub) {
    return run_with(context, encoded, hub, [&hub](auto&& call) {
      return answer_of(std::forward<decltype(call)>(call), hub);
    });
  }
  /// Decodes the arguments and returns what `finish(call)` does, where `call()` runs the function.
  template <class Finish>
  static Result<Bytes> run_with(ActorContext& context, std::span<const std::byte> encoded,
                                const std::weak_ptr<CallHub>& hub, Finish&& finish) {
    Arguments arguments{};
    Decoder decoder(encoded, hub);
    decoder(arguments);
    TROUPE_CHECK(decoder.finish());
    try {
      const auto invoke = [&](auto&... values) -> Return {
        if constexpr (Traits::with_context) {
          return function(context, std::move(values)...);
        } else {
          return function(std::move(values)...);
        }
      };
      return finish([&]() -> Return { return std::apply(invoke, arguments); });
    } catch (...) {
      return fail(ErrorCode::exception, "task {} threw {}", task_detail::function_name<function>(),
                  current_exception_description());
    }
  }

  /// Its initialisation, before main, makes the function known to this process.
  inline static const TaskFunctionId id =
      TaskFunctions::add(task_detail::function_name<function>(),
                         task_detail::type_name<decltype(function)>(), &TaskFunction::run);
};

}  // namespace troupe
