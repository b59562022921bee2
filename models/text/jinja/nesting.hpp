#pragma once

#include "models/text/jinja/failure.hpp"

namespace troupe::jinja {

/// Counts the nesting of calls while it lives, and throws Failure before the stack runs out.
class Nesting {
 public:
  static constexpr int deepest = 400;

  explicit Nesting(int& depth) : depth_(depth) {
    if (depth_ >= deepest)
      throw Failure{ErrorCode::resource_exhausted,
                    fmt::format("calls nested more than {} deep", deepest)};
    ++depth_;
  }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  int& depth_;
};

}  // namespace troupe::jinja
