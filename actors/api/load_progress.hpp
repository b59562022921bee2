#pragma once

#include <cstdint>
#include <functional>

#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/methods.hpp"

namespace troupe {

/// A worker's progress in loading its weights.
struct LoadingState {
  std::int32_t rank = 0;
  std::uint64_t bytes = 0;        ///< on its device already
  std::uint64_t total_bytes = 0;  ///< on its device at the end

  template <class Archive>
  void fields(Archive& archive) {
    archive(rank, bytes, total_bytes);
  }
};

/// The actor to which workers report their progress while the driver waits for them. It runs in the
/// driver's process.
class LoadProgress {
 public:
  /// `on_state` is called on the actor's thread; must not block.
  LoadProgress(ActorContext& /*context*/, std::function<void(const LoadingState&)> on_state)
      : on_state_(std::move(on_state)) {}

  void note(const LoadingState& state) { on_state_(state); }

  using Arguments = troupe::Arguments<std::function<void(const LoadingState&)>>;
  using Methods = troupe::Methods<&LoadProgress::note>;
  static constexpr std::string_view actor_type = "LoadProgress";

 private:
  std::function<void(const LoadingState&)> on_state_;
};

}  // namespace troupe
