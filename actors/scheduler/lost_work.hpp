#pragma once

#include <cstdint>

namespace troupe {

/// What schedulers lose with their workers and compute again.
struct LostWork {
  /// Positions whose keys and values sequences had, computed or found in the prefix cache.
  std::uint64_t kv_tokens = 0;
  /// Tokens that the steps in flight sample, whose results nobody takes: at most so many are
  /// sampled again.
  std::uint64_t in_flight_tokens = 0;

  void add(const LostWork& other) {
    kv_tokens += other.kv_tokens;
    in_flight_tokens += other.in_flight_tokens;
  }

  template <class Archive>
  void fields(Archive& archive) {
    archive(kv_tokens, in_flight_tokens);
  }
};

}  // namespace troupe
