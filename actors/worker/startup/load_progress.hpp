#pragma once

#include <cstdint>
#include <functional>

#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/methods.hpp"

namespace troupe {

/// How far a worker is with its weights.
struct LoadingState {
  std::int32_t rank = 0;
  std::uint64_t bytes = 0;        ///< that its device has
  std::uint64_t total_bytes = 0;  ///< that it will have

  template <class Archive>
  void fields(Archive& archive) {
    archive(rank, bytes, total_bytes);
  }
};

/// The actor that workers tell how far they are while the driver waits for them. Lives where the
/// driver does.
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
