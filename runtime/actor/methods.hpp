#pragma once

#include <array>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "runtime/base/result.hpp"
#include "runtime/call/encode_answer.hpp"

namespace troupe {

class ActorContext;
template <class T>
class Async;
template <class T>
class Stream;

template <class R>
struct AnswerOf<Async<R>> : AnswerOf<R> {};

namespace methods_detail {

template <class R>
struct IsAsync : std::false_type {};
template <class R>
struct IsAsync<Async<R>> : std::true_type {};
template <class R>
struct IsStream : std::false_type {};
template <class R>
struct IsStream<Stream<R>> : std::true_type {
  using Item = R;
};
/// The method is a coroutine.
template <class R>
inline constexpr bool is_coroutine = std::disjunction_v<IsAsync<R>, IsStream<R>>;

template <class M>
struct MethodTraits;
template <class A, class R, class... Args>
struct MethodTraits<R (A::*)(Args...)> {
  using Actor = A;
  using Return = R;
  using Answer = typename AnswerOf<R>::Type;
  using Arguments = std::tuple<std::decay_t<Args>...>;
};
template <class A, class R, class... Args>
struct MethodTraits<R (A::*)(Args...) const> : MethodTraits<R (A::*)(Args...)> {};

template <auto method>
inline constexpr bool is_stream = IsStream<typename MethodTraits<decltype(method)>::Return>::value;

/// A type for each method, because types compare at compile time everywhere: under
/// -fsanitize=undefined g++ does not take pointers to members of one signature for constants.
template <auto method>
struct Tag {};
template <auto a, auto b>
constexpr bool same_method() {
  return std::is_same_v<Tag<a>, Tag<b>>;
}

/// How the compiler writes `method`.
template <auto method>
constexpr std::string_view spelling() {
  return __PRETTY_FUNCTION__;
}

/// The name in "... [with auto method = &Shop::Till::add; ...]", also with "(& Shop::Till::add)".
constexpr std::string_view name_in(std::string_view text) {
  constexpr std::string_view before = "method = ";
  text.remove_prefix(text.find(before) + before.size());
  text = text.substr(0, text.find_first_of(";]"));
  if (text.ends_with(')')) text.remove_suffix(1);
  std::size_t begin = 0, end = text.size(), depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<' && depth++ == 0) end = i;  // of the class, unless it is the last one
    if (text[i] == '>') --depth;
    if (depth == 0 && text[i] == ':') begin = i + 1, end = text.size();
  }
  return text.substr(begin, end - begin);
}

}  // namespace methods_detail

/// The name of a method, without its class: "add".
template <auto method>
inline constexpr std::string_view method_name =
    methods_detail::name_in(methods_detail::spelling<method>());

/// The callable methods of an actor class, listed once inside it; a method's index in the list is
/// its number on the wire. Methods may return R, Result<R> or void, Async<R> (see async/async.hpp)
/// or Stream<R> (async/stream.hpp), and take encodable arguments (see runtime/call/codec.hpp) by
/// value or const reference.
template <auto... list>
struct Methods {
  static constexpr std::size_t count = sizeof...(list);
  /// By number.
  static constexpr std::array<std::string_view, count> names{method_name<list>...};

  /// This list with more methods behind it: the list of a derived class.
  template <auto... more>
  using plus = Methods<list..., more...>;

  /// Returns the number of `method`; `count` if it is not listed.
  template <auto method>
  static constexpr std::size_t index_of() {
    std::size_t index = count, i = 0;
    ((index = methods_detail::same_method<method, list>() && index == count ? i : index, ++i), ...);
    return index;
  }

  /// Whether `Other`, a Methods list too, begins with this one, so that the numbers of this one's
  /// methods mean the same there.
  template <class Other>
  static constexpr bool is_prefix_of() {
    return ((Other::template index_of<list>() == index_of<list>()) && ...);
  }

  /// Calls `visit.template operator()<method>()` for the method of number `index`; false if there
  /// is none.
  template <class Visitor>
  static bool visit(std::size_t index, Visitor&& visitor) {
    std::size_t i = 0;
    return ((i++ == index ? (visitor.template operator()<list>(), true) : false) || ...);
  }
};

/// The parameter types of an actor's constructor (after the optional ActorContext&), declared
/// inside the class as `using Arguments = troupe::Arguments<int>;`, because C++ cannot look them
/// up. A class without it has a constructor without further parameters.
///
/// A class whose construction can fail has instead
///   static Result<std::unique_ptr<A>> create(ActorContext& context, int start);
/// (the context again optional); its parameter types are deduced.
/// The spawn fails with the error or exception of create or of a constructor.
template <class... Args>
using Arguments = std::tuple<std::decay_t<Args>...>;

namespace methods_detail {

template <class F>
struct CreateTraits;
template <class R, class... Args>
struct CreateTraits<R (*)(ActorContext&, Args...)> {
  static constexpr bool with_context = true;
  using Arguments = std::tuple<std::decay_t<Args>...>;
};
template <class R, class... Args>
struct CreateTraits<R (*)(Args...)> {
  static constexpr bool with_context = false;
  using Arguments = std::tuple<std::decay_t<Args>...>;
};

template <class A>
concept HasCreate = requires { &A::create; };
template <class A>
concept HasArguments = requires { typename A::Arguments; };

template <class A>
struct ConstructionArguments {
  using Type = std::tuple<>;
};
template <class A>
  requires(HasCreate<A>)
struct ConstructionArguments<A> {
  using Type = typename CreateTraits<decltype(&A::create)>::Arguments;
};
template <class A>
  requires(HasArguments<A> && !HasCreate<A>)
struct ConstructionArguments<A> {
  using Type = typename A::Arguments;
};

}  // namespace methods_detail

/// The decayed types, as a std::tuple, of the arguments for spawning an A.
template <class A>
using ConstructionArguments = typename methods_detail::ConstructionArguments<A>::Type;

}  // namespace troupe
