#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
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

/// Waits for one answer from each of several calls and returns them in order. Returns the first
/// error as soon as it arrives, even if other calls are still open: the others may be waiting for
/// the actor that failed. Errors name the actor; timeout names the first that has not answered
/// within `timeout`.
template <class T>
Result<std::vector<T>> take_answers(std::span<Future<T>> calls, std::span<const std::string> names,
                                    std::chrono::nanoseconds timeout) {
  // The longest delay until an error is noticed.
  constexpr std::chrono::milliseconds look_around = std::chrono::milliseconds(50);
  Deadline deadline(timeout);
  std::vector<std::optional<T>> answers(calls.size());
  const auto missing = [&] {
    return static_cast<std::size_t>(
        std::ranges::find(answers, false, &std::optional<T>::has_value) - answers.begin());
  };
  for (std::size_t first = missing(); first < calls.size(); first = missing()) {
    const auto left = deadline.left();
    const bool is_over = left == left.zero();
    if (!is_over) calls[first].wait(std::min<std::chrono::nanoseconds>(left, look_around));
    for (std::size_t i = first; i < calls.size(); ++i) {
      if (answers[i] || !calls[i].ready()) continue;
      Result<T> answer = calls[i].get(timeout);
      if (!answer.ok()) return from_actor(names[i], std::move(answer).error());
      answers[i] = *std::move(answer);
    }
    if (is_over && !answers[first]) {
      return fail(ErrorCode::timeout, "{}: no answer within {} s", names[first],
                  std::chrono::duration_cast<std::chrono::seconds>(timeout).count());
    }
  }
  std::vector<T> taken;
  for (auto& answer : answers) taken.push_back(*std::move(answer));
  return taken;
}

}  // namespace troupe
