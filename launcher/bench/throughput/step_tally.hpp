#pragma once

#include <cstdint>
#include <map>

#include "actors/telemetry/step_record.hpp"

namespace troupe {

/// The steps of a measurement by the number of tokens they computed, in bounded memory. A value.
struct StepTally {
  std::map<std::uint64_t, std::uint64_t> by_tokens;  ///< number of steps by tokens computed, > 0
  std::uint64_t sampling = 0;                        ///< number of these that generated any

  /// A record of several steps counts as that many equal ones.
  void add(const StepRecord& record);
};

}  // namespace troupe
