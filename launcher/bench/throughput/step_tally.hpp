#pragma once

#include <cstdint>
#include <map>

#include "actors/telemetry/step_record.hpp"

namespace troupe {

/// The steps of a measurement by how much they computed, in bounded memory. A value.
struct StepTally {
  std::map<std::uint64_t, std::uint64_t> by_tokens;  ///< steps that computed so many tokens, > 0
  std::uint64_t sampling = 0;                        ///< of these, that generated any

  /// Records of several steps count as so many equal ones.
  void add(const StepRecord& record);
};

}  // namespace troupe
