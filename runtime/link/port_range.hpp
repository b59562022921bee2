#pragma once

#include <cstdint>

namespace troupe {

/// The TCP ports that listeners may take, both ends included. 0: any that the kernel chooses.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;

  bool is_any() const { return first == 0; }
  template <class Archive>
  void fields(Archive& archive) {
    archive(first, last);
  }
};

}  // namespace troupe
