#include "runtime/call/future.hpp"

#include <stdexcept>

#include <gtest/gtest.h>

namespace troupe {

using namespace std::chrono_literals;

TEST(Future, takes_one_callback_and_refuses_a_second) {
  const Promise<int> promise;
  Future<int> future = promise.future();
  int first = 0;
  ErrorCode second{};
  future.then([&](const Result<int>& value) { first = value.ok() ? *value : -1; });
  future.then([&](const Result<int>& value) {
    second = value.ok() ? ErrorCode::internal : value.error().code;
  });
  EXPECT_EQ(second, ErrorCode::invalid_argument) << "told at once";
  promise.complete(7);
  EXPECT_EQ(first, 7);
}

TEST(Future, survives_exceptions_of_callbacks_of_any_type) {
  for (const bool early : {true, false}) {
    const Promise<int> promise;
    if (early) promise.complete(1);
    promise.future().then([](const Result<int>&) { throw std::runtime_error("on purpose"); });
    promise.complete(1);
    const Promise<int> other;
    if (early) other.complete(1);
    other.future().then([](const Result<int>&) { throw 7; });
    other.complete(1);
  }
}

TEST(Future, marks_its_thread_while_a_callback_runs) {
  const Promise<int> promise;
  bool marked = false;
  promise.future().then([&](const Result<int>&) { marked = runs_callback(); });
  promise.complete(1);
  EXPECT_TRUE(marked);
  EXPECT_FALSE(runs_callback());
}

}  // namespace troupe
