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
#include "runtime/call/wait.hpp"

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
/// the actor that failed. Errors name the actor; timed_out names the first that has not
/// answered within `timeout`.
template <class T>
Result<Answers<T>> take_answers(std::span<Future<T>> calls, std::span<const std::string> names,
                                std::chrono::nanoseconds timeout) {
  Deadline deadline(timeout);
  ReadyQueue ready;
  for (std::size_t i = 0; i < calls.size(); ++i) ready.add(calls[i], i);
  std::vector<std::optional<Result<T>>> answers(calls.size());
  for (std::size_t count = 0; count < calls.size(); ++count) {
    const auto next = ready.next(deadline);
    if (!next) {
      const auto silent =
          std::ranges::find_if(answers, [](const auto& one) { return !one; }) - answers.begin();
      return fail(ErrorCode::timed_out, "{}: no answer within {} s",
                  names[static_cast<std::size_t>(silent)],
                  std::chrono::duration_cast<std::chrono::seconds>(timeout).count());
    }
    auto& answer = answers[*next];
    answer.emplace(calls[*next].get(timeout));
    if (!answer->ok()) return from_actor(names[*next], std::move(*answer).error());
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
