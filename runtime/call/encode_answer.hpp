#pragma once

#include <memory>

#include "runtime/call/codec.hpp"

namespace troupe {

/// Encodes what a method or a task returns. References to objects in it live until their receiver
/// has them.
template <class T>
Bytes encode_answer(const T& value, const std::weak_ptr<CallHub>& hub) {
  Encoder encoder(hub);
  encoder(value);
  return encoder.take();
}

}  // namespace troupe
