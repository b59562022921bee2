#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include <fmt/format.h>

namespace troupe {

/// The kind of an error; the message says which file, rank, host or request it concerns.
enum class ErrorCode {
  invalid_argument,    ///< wrong input by the caller or user; the same call fails again
  not_found,           ///< a file, name, actor or tensor does not exist
  already_exists,      ///< a name or file is taken
  permission_denied,   ///< the peer or file refuses us, or a handshake was not authentic
  corrupt_data,        ///< a file or message breaks its own format
  unsupported,         ///< well-formed, but not something this version does
  resource_exhausted,  ///< memory, blocks, devices, file descriptors or a queue's bound ran out
  unschedulable,       ///< no node has, or will have, the resources that were asked for
  timed_out,           ///< a bounded wait ran out
  cancelled,           ///< aborted on purpose (shutdown, abort of a collective)
  peer_died,           ///< the process at the other end is gone
  actor_died,          ///< the actor is gone for good; the message has the cause
  actor_unavailable,   ///< the actor cannot be reached now: it restarts, or its link broke
  object_lost,         ///< the owner of an object is gone, or no copy is left
  exception,           ///< a method or task threw; the message has the type and its text
  io,                  ///< a system call failed; the message carries errno's text
  internal,            ///< a bug of ours, or a library error that fits nowhere else
};

/// True for an answer that does not come because its actor or its process is gone or cannot be
/// reached: whoever watches the actor knows more.
constexpr bool is_actor_gone(ErrorCode code) {
  return code == ErrorCode::actor_died || code == ErrorCode::actor_unavailable ||
         code == ErrorCode::peer_died;
}

/// The enumerator's name, e.g. "peer_died".
std::string_view to_string(ErrorCode code);

/// An error with a message for a person: what happened, where, and what can be done about it.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
};

/// Makes an Error with a formatted message: `fail(ErrorCode::io, "cannot open {}: {}", path, why)`.
template <class... Args>
Error fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return {code, fmt::format(format, std::forward<Args>(args)...)};
}

/// An `io` error whose message ends with the text of `errno_value`.
Error fail_errno(int errno_value, std::string_view what);

/// A value or an Error. Exceptions stop at the wrappers of libraries; all our own code returns
/// Result. Calling value() on an error, or error() on a value, is a bug (asserted).
template <class T = void>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return assert(ok()), std::get<0>(state_); }
  const T& value() const& { return assert(ok()), std::get<0>(state_); }
  T&& value() && { return assert(ok()), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return assert(!ok()), std::get<1>(state_); }
  Error&& error() && { return assert(!ok()), std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const& { return assert(error_), *error_; }
  Error&& error() && { return assert(error_), *std::move(error_); }

 private:
  std::optional<Error> error_;
};

/// Returns the error from the enclosing function if `expression` (a Result<void>) failed. Does not
/// compile for a Result with a value, which it would drop: TROUPE_TRY takes that.
#define TROUPE_CHECK(expression)                                                        \
  do {                                                                                  \
    auto troupe_result_ = (expression);                                                 \
    static_assert(std::is_same_v<decltype(troupe_result_), ::troupe::Result<void>>,     \
                  "TROUPE_CHECK takes a Result<void>; take the value with TROUPE_TRY"); \
    if (!troupe_result_.ok()) return std::move(troupe_result_).error();                 \
  } while (false)

/// `TROUPE_TRY(auto file, open(path));` declares `file` with the value, or returns the error.
#define TROUPE_TRY(declaration, expression) \
  TROUPE_TRY_IMPL_(TROUPE_CONCAT_(troupe_result_, __LINE__), declaration, expression)
#define TROUPE_TRY_IMPL_(name, declaration, expression) \
  auto name = (expression);                             \
  if (!name.ok()) return std::move(name).error();       \
  declaration = std::move(name).value()
#define TROUPE_CONCAT_(a, b) TROUPE_CONCAT_IMPL_(a, b)
#define TROUPE_CONCAT_IMPL_(a, b) a##b

}  // namespace troupe
