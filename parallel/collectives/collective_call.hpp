#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// Describes a call to the other ranks, so that ranks whose calls differ get an error instead of
/// mixing up their bytes.
struct CollectiveCall {
  enum class Kind : std::uint32_t {
    none,
    all_reduce,
    reduce_scatter,
    all_gather,
    broadcast,
    all_to_all,
    barrier,
    message
  };
  Kind kind = Kind::none;
  std::uint32_t root = 0;   ///< for a broadcast
  std::uint64_t bytes = 0;  ///< of the whole tensor; for all_to_all, of a row

  bool operator==(const CollectiveCall&) const = default;
};

/// For messages: "broadcast of 4096 bytes, root 1".
std::string describe(const CollectiveCall& call);

}  // namespace troupe
