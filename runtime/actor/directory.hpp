#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/actor/actor_down.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/call/actor_address.hpp"

namespace troupe {

class ActorRegistry;

/// The driver's register of actors as an actor of its own, for the contexts of other processes.
class Directory {
 public:
  explicit Directory(std::shared_ptr<const ActorRegistry> registry)
      : registry_(std::move(registry)) {}

  /// As ActorContext::find.
  Result<ActorAddress> find(const std::string& name, const std::string& type);
  /// The end of an actor that is gone.
  std::optional<ActorDown> down_of(ActorId actor);

  static constexpr std::string_view actor_type = "troupe.Directory";
  using Methods = troupe::Methods<&Directory::find, &Directory::down_of>;

 private:
  std::shared_ptr<const ActorRegistry> registry_;
};

}  // namespace troupe
