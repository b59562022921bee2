#include "runtime/actor/actor_class.hpp"

#include <atomic>
#include <string>

#include "runtime/actor/actor_type.hpp"
#include "runtime/base/type_name.hpp"

namespace troupe::actor_detail {
namespace {

/// The one list that is filled before main; constant from its start on but for libraries that are
/// loaded later.
std::atomic<const ActorClass*>& first_class() {
  static constinit std::atomic<const ActorClass*> first{nullptr};
  return first;
}

Error same_name(const ActorClass& a, const ActorClass& b) {
  return fail(ErrorCode::invalid_argument,
              "two actor classes are called '{}', in {} and in {}: give one of them another "
              "actor_type",
              a.name(), b.file, a.file);
}

}  // namespace

ActorClass::ActorClass(std::string_view (*name_of)(), const std::type_info& class_type,
                       Make factory, const char* source_file)
    : name(name_of), type(class_type), make(factory), file(source_file), next(first_class()) {
  while (!first_class().compare_exchange_weak(next, this)) {
  }
}

Result<const ActorClass*> find_class(std::string_view name) {
  const ActorClass* found = nullptr;
  for (const ActorClass* each = first_class(); each != nullptr; each = each->next) {
    if (each->name() != name) continue;
    if (found != nullptr && found->type != each->type) return same_name(*found, *each);
    found = each;
  }
  return found;
}

Result<void> check_classes() {
  for (const ActorClass* each = first_class(); each != nullptr; each = each->next) {
    TROUPE_TRY([[maybe_unused]] const auto* found, find_class(each->name()));
  }
  return {};
}

std::string class_name(const std::type_info& type) {
  std::string name = type_name(type);
  constexpr std::string_view anonymous = "(anonymous namespace)::";
  for (auto at = name.find(anonymous); at != std::string::npos; at = name.find(anonymous)) {
    name.erase(at, anonymous.size());
  }
  return name;
}

}  // namespace troupe::actor_detail
