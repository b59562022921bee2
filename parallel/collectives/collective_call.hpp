#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// What a call is, told to the other ranks, so that ranks that disagree find out instead of mixing
/// up their bytes.
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
  std::uint32_t root = 0;   ///< of a broadcast
  std::uint64_t bytes = 0;  ///< of the whole tensor; of all_to_all, of a row

  bool operator==(const CollectiveCall&) const = default;
};

/// For messages: "broadcast of 4096 bytes, root 1".
std::string describe(const CollectiveCall& call);

}  // namespace troupe
