#pragma once

#include <cstddef>

#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The second block of a decoder layer: a dense MLP or experts.
class FeedForward {
 public:
  virtual ~FeedForward() = default;

  /// x [tokens, hidden] activation, the same on all tensor ranks; out [own tokens, hidden] f32.
  /// Errors: those of Collectives.
  virtual Result<void> forward(const Tensor& x, const Tensor& out) const = 0;
  /// Device memory of its weights.
  virtual std::size_t bytes() const = 0;
};

}  // namespace troupe
