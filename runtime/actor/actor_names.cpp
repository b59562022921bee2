#include "runtime/actor/actor_names.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

namespace troupe {
namespace {

struct SpaceAndName {
  std::string_view space, name;
};

/// The parts of a full name; the default namespace is empty.
SpaceAndName split(std::string_view full_name) {
  const std::size_t slash = full_name.find('/');
  if (slash == std::string_view::npos) return {{}, full_name};
  return {full_name.substr(0, slash), full_name.substr(slash + 1)};
}

}  // namespace

ActorNames::ActorNames(std::string default_space) : default_(std::move(default_space)) {}

std::string ActorNames::full_name(std::string_view name, std::string_view space) const {
  if (space.empty()) {
    const SpaceAndName parts = split(name);
    space = parts.space;
    name = parts.name;
  }
  if (space.empty() || space == default_) return std::string(name);
  return fmt::format("{}/{}", space, name);
}

std::string ActorNames::file_name(std::string full_name) {
  std::ranges::replace(full_name, '/', '.');
  return full_name;
}

Result<void> ActorNames::check(std::string_view name, std::string_view space) const {
  if (name.find('/') != std::string_view::npos) {
    return fail(ErrorCode::invalid_argument,
                "the actor name '{}' has a '/', but it names a log file; a namespace is given "
                "beside the name",
                name);
  }
  if (space.find('/') != std::string_view::npos) {
    return fail(ErrorCode::invalid_argument, "the namespace '{}' has a '/'", space);
  }
  if (actors_.contains(full_name(name, space))) {
    return fail(ErrorCode::already_exists, "there is an actor named '{}' already",
                full_name(name, space));
  }
  return {};
}

void ActorNames::add(const std::string& full_name, ActorId actor) {
  actors_[full_name] = actor;
  const auto [space, name] = split(full_name);
  if (!space.empty()) spaces_[std::string(name)].emplace(space);
}

void ActorNames::erase(const std::string& full_name) {
  actors_.erase(full_name);
  const auto [space, name] = split(full_name);
  const auto found = space.empty() ? spaces_.end() : spaces_.find(name);
  if (found == spaces_.end()) return;
  found->second.erase(std::string(space));
  if (found->second.empty()) spaces_.erase(found);
}

std::optional<ActorId> ActorNames::find(std::string_view full_name) const {
  const auto found = actors_.find(full_name);
  return found == actors_.end() ? std::nullopt : std::optional(found->second);
}

Error ActorNames::missing(std::string_view name, std::string_view space) const {
  constexpr std::size_t most = 5;
  const std::string asked = full_name(name, space);
  const std::string_view plain = split(asked).name;
  std::vector<std::string> others;
  if (actors_.contains(plain)) others.push_back(fmt::format("'{}'", plain));
  if (const auto found = spaces_.find(plain); found != spaces_.end()) {
    for (const std::string& other : found->second) {
      others.push_back(others.size() < most ? fmt::format("'{}/{}'", other, plain) : "others");
      if (others.size() > most) break;
    }
  }
  std::string text = fmt::format("no actor is named '{}'", asked);
  if (!others.empty()) {
    text += fmt::format("; in other namespaces there {} {}", others.size() == 1 ? "is" : "are",
                        fmt::join(others, ", "));
  }
  return Error{ErrorCode::not_found, std::move(text)};
}

}  // namespace troupe
