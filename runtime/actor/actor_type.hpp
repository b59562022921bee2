#pragma once

#include <string>
#include <string_view>
#include <typeinfo>

namespace troupe {

namespace actor_detail {

/// The class's name as C++ writes it, without "(anonymous namespace)::".
std::string class_name(const std::type_info& type);

}  // namespace actor_detail

/// The name by which processes find an actor class, and people in errors, logs and `troupe actors`:
/// its `actor_type`, a static constexpr std::string_view, or else the class's own name
/// ("shop::Counter"). One class of a program has it.
template <class A>
std::string_view actor_type_of() {
  if constexpr (requires { A::actor_type; }) {
    return A::actor_type;
  } else {
    static const std::string name = actor_detail::class_name(typeid(A));
    return name;
  }
}

}  // namespace troupe
