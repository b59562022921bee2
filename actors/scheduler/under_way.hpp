#pragma once

#include <cstdint>
#include <optional>

namespace troupe {

/// A request that was in the steps in flight when these ended.
struct UnderWay {
  std::uint64_t request = 0;
  /// The number of generated tokens that its sequence has, or whose keys and values these steps
  /// compute. Once it has more, all that was under way has been computed. None for a request of
  /// several sequences.
  std::optional<std::int64_t> reach{};

  template <class Archive>
  void fields(Archive& archive) {
    archive(request, reach);
  }
  friend bool operator==(const UnderWay&, const UnderWay&) = default;
};

}  // namespace troupe
