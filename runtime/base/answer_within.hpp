#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/result.hpp"

namespace troupe {

/// Asks something that may block for longer than the caller can wait, such as a name server, on a
/// thread of its own. Errors: those of `ask`; timeout if it has not answered within `limit`: then
/// it goes on by itself, so what it uses must be its own; resource_exhausted without a thread.
/// `what` is for messages: "the name server does not answer for gpu01".
template <class T>
Result<T> answer_within(std::chrono::milliseconds limit, std::function<Result<T>()> ask,
                        std::string_view what) {
  const auto promise = std::make_shared<std::promise<Result<T>>>();
  auto answer = promise->get_future();
  try {
    std::thread([promise, ask = std::move(ask)] { promise->set_value(ask()); }).detach();
  } catch (const std::system_error& error) {
    return fail(ErrorCode::resource_exhausted, "cannot start a thread: {}", error.what());
  }
  if (answer.wait_for(limit) == std::future_status::ready) return answer.get();
  return fail(ErrorCode::timed_out, "{} within {} ms", what, limit.count());
}

}  // namespace troupe
