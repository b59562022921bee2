#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// Where one rank of a group listens for the others.
struct NetworkAddresses {
  int rank = 0;
  int size = 0;
  std::size_t room = 0;  ///< bytes of each of its lanes
  std::string host;      ///< numeric
  std::uint16_t port = 0;
};

std::string encode(const NetworkAddresses& addresses);

/// Decodes the addresses of every rank, in order of rank. Errors: corrupt_data for malformed bytes,
/// invalid_argument unless they are of the ranks of one group, in order, with rooms of `room`.
Result<std::vector<NetworkAddresses>> decode_group(std::span<const std::string> encoded,
                                                   std::size_t room);

}  // namespace troupe
