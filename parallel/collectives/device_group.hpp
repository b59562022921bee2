#pragma once

#include <string>

namespace troupe {

/// A group of ranks with a GPU each.
struct DeviceGroup {
  std::string name;  ///< for messages: "tensor"
  /// All ranks are processes below one agent: only they may open each other's device memory.
  bool on_one_node = true;
};

}  // namespace troupe
