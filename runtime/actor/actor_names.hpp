#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"
#include "runtime/call/actor_address.hpp"

namespace troupe {

/// The names of living actors, unique within a namespace each. Not synchronised.
///
/// An actor's full name is its name in the default namespace, and "NAMESPACE/NAME" in others. It is
/// what the actor is called everywhere, and no two living actors share one. Where a namespace is
/// asked for, none means the default one, and with it a full name may stand in place of a name.
class ActorNames {
 public:
  explicit ActorNames(std::string default_space = {});

  std::string full_name(std::string_view name, std::string_view space) const;
  /// For the name of a file: no '/' in it.
  static std::string file_name(std::string full_name);

  /// Whether an actor may have this name. Errors: invalid_argument for a '/' in one of them,
  /// already_exists.
  Result<void> check(std::string_view name, std::string_view space) const;
  void add(const std::string& full_name, ActorId actor);
  void erase(const std::string& full_name);
  std::optional<ActorId> find(std::string_view full_name) const;
  /// That no actor has this name, and which ones have it in other namespaces.
  Error missing(std::string_view name, std::string_view space) const;

 private:
  const std::string default_;
  std::map<std::string, ActorId, std::less<>> actors_;  ///< by full name
  /// The namespaces other than the default one in which there is an actor of a name.
  std::map<std::string, std::set<std::string>, std::less<>> spaces_;
};

}  // namespace troupe
