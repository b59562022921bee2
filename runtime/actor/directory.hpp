#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/actor/methods.hpp"
#include "runtime/call/actor_address.hpp"

namespace troupe {

class ActorRegistry;

/// The driver's registry of actors, as an actor that the contexts of other processes call.
class Directory {
 public:
  explicit Directory(std::shared_ptr<const ActorRegistry> registry)
      : registry_(std::move(registry)) {}

  /// See ActorContext::find.
  Result<ActorAddress> find(const std::string& name, const std::string& space,
                            const std::string& type);

  static constexpr std::string_view actor_type = "troupe.Directory";
  using Methods = troupe::Methods<&Directory::find>;

 private:
  std::shared_ptr<const ActorRegistry> registry_;
};

}  // namespace troupe
