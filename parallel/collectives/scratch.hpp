#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "parallel/device/tensor.hpp"

namespace troupe {

/// Memory that a call uses again in its next run, since fresh memory costs more than what is copied
/// into it. Grows to the most that was asked for.
class Scratch {
 public:
  /// 64-byte aligned, with any content, until the next call of this object.
  std::span<std::byte> bytes(std::size_t count) {
    if (memory_->bytes() < count) {
      memory_ = HostTensor(DType::u8, {static_cast<std::int64_t>(count)});
    }
    return {static_cast<std::byte*>(memory_->data()), count};
  }
  std::span<float> floats(std::size_t count) {
    return {reinterpret_cast<float*>(bytes(count * sizeof(float)).data()), count};
  }

 private:
  HostTensor memory_;
};

}  // namespace troupe
