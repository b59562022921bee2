#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/actor/cluster.hpp"

namespace troupe::test {

using namespace std::chrono_literals;

class Counter {
 public:
  explicit Counter(int start) : value_(start) {}
  int add(int amount) { return value_ += amount; }
  Result<int> divide(int divisor) {
    if (divisor == 0) return fail(ErrorCode::invalid_argument, "division by zero");
    return value_ / divisor;
  }
  void reset() { value_ = 0; }

  static constexpr std::string_view actor_type = "Counter";
  using Arguments = troupe::Arguments<int>;
  using Methods = troupe::Methods<&Counter::add, &Counter::divide, &Counter::reset>;

 private:
  int value_;
};

}  // namespace troupe::test
