#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/base/result.hpp"
#include "runtime/call/future.hpp"

namespace troupe {

/// Prefixes the error with the name of the actor it came from.
inline Error from_actor(std::string_view name, Error error) {
  error.message = fmt::format("{}: {}", name, error.message);
  return error;
}

/// The answers of several calls that return T each; nothing but success if T is void.
template <class T>
using Answers = std::conditional_t<std::is_void_v<T>, void, std::vector<T>>;

/// Waits for one answer from each of several calls and returns them in order. Returns the first
/// error as soon as it arrives, even if other calls are still open: the others may be waiting for
/// the actor that failed. Errors name the actor; timeout names the first that has not answered
/// within `timeout`.
template <class T>
Result<Answers<T>> take_answers(std::span<Future<T>> calls, std::span<const std::string> names,
                                std::chrono::nanoseconds timeout) {
  // The longest delay until an error is noticed.
  constexpr std::chrono::milliseconds look_around = std::chrono::milliseconds(50);
  Deadline deadline(timeout);
  std::vector<std::optional<Result<T>>> answers(calls.size());
  std::size_t first = 0;  // that has not answered
  while (first < calls.size()) {
    const auto left = deadline.left();
    const bool is_over = left == left.zero();
    if (!is_over) calls[first].wait(std::min<std::chrono::nanoseconds>(left, look_around));
    for (std::size_t i = first; i < calls.size(); ++i) {
      if (answers[i] || !calls[i].ready()) continue;
      answers[i].emplace(calls[i].get(timeout));
      if (!answers[i]->ok()) return from_actor(names[i], std::move(*answers[i]).error());
    }
    if (is_over && !answers[first]) {
      return fail(ErrorCode::timed_out, "{}: no answer within {} s", names[first],
                  std::chrono::duration_cast<std::chrono::seconds>(timeout).count());
    }
    while (first < calls.size() && answers[first]) ++first;
  }
  if constexpr (std::is_void_v<T>) {
    return {};
  } else {
    std::vector<T> taken;
    for (auto& answer : answers) taken.push_back(**std::move(answer));
    return taken;
  }
}

}  // namespace troupe
