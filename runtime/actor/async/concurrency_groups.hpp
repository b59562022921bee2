#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "runtime/actor/methods.hpp"

namespace troupe {

/// A text as a template argument.
template <std::size_t n>
struct GroupName {
  consteval GroupName(const char (&text)[n]) { std::copy_n(text, n, characters); }  // NOLINT
  char characters[n] = {};
};

/// A concurrency group: at most `limit` calls of these methods are under way at a time.
template <GroupName group_name, std::size_t limit, auto... methods>
struct Group {
  static_assert(limit > 0, "a group without calls");
  static constexpr std::string_view name = group_name.characters;
  static constexpr std::size_t max_concurrency = limit;

  template <auto method>
  static constexpr bool has = (methods_detail::same_method<method, methods>() || ...);
};

/// The concurrency groups of an actor class (Ray's), declared inside it behind its Methods:
///
///   using ConcurrencyGroups = troupe::ConcurrencyGroups<
///       troupe::Group<"io", 2, &Store::read, &Store::write>, troupe::Group<"stats", 1,
///       &Store::size>>;
///
/// Each group has its own queue and its own limit, so calls of one do not wait for those of
/// another; methods in none are the default group, whose limit is SpawnOptions::max_concurrency.
/// In a class without coroutines the methods of different groups run at the same time, on several
/// threads, and guard what they share.
template <class... Groups>
struct ConcurrencyGroups {
  static constexpr std::size_t count = sizeof...(Groups);
  static constexpr std::array<std::size_t, count> limits{Groups::max_concurrency...};

  /// The number of the method's group, from 1 on; 0 for the default group.
  template <auto method>
  static constexpr std::uint8_t group_of() {
    std::uint8_t group = 0, i = 0;
    ((++i, group = Groups::template has<method> && group == 0 ? i : group), ...);
    return group;
  }
};

/// How calls of an actor class share its time.
struct ClassConcurrency {
  bool has_coroutines = false;
  std::span<const std::size_t> limits;            ///< of its concurrency groups, from 1 on
  std::span<const std::uint8_t> group_of_method;  ///< by method number
  std::span<const bool> is_stream;                ///< by method number
  std::span<const bool> coroutines;               ///< by method number; streams, too

  std::size_t group_of(std::uint16_t method) const {
    return method < group_of_method.size() ? group_of_method[method] : 0;
  }
  bool opens_stream(std::uint16_t method) const {
    return method < is_stream.size() && is_stream[method];
  }
  bool is_coroutine(std::uint16_t method) const {
    return method < coroutines.size() && coroutines[method];
  }
};

namespace async_detail {

template <class A>
struct GroupsOf {
  using Type = ConcurrencyGroups<>;
};
template <class A>
  requires requires { typename A::ConcurrencyGroups; }
struct GroupsOf<A> {
  using Type = typename A::ConcurrencyGroups;
};

template <class Groups, class List>
struct GroupTable;
template <class Groups, auto... methods>
struct GroupTable<Groups, Methods<methods...>> {
  static constexpr std::array<std::uint8_t, sizeof...(methods)> groups{
      Groups::template group_of<methods>()...};
  static constexpr std::array<bool, sizeof...(methods)> is_stream{
      methods_detail::is_stream<methods>...};
  static constexpr std::array<bool, sizeof...(methods)> coroutines{methods_detail::is_coroutine<
      typename methods_detail::MethodTraits<decltype(methods)>::Return>...};
  static constexpr bool has_coroutines = std::ranges::any_of(coroutines, std::identity());
};

}  // namespace async_detail

template <class A>
constexpr ClassConcurrency class_concurrency() {
  using Groups = typename async_detail::GroupsOf<A>::Type;
  using Table = async_detail::GroupTable<Groups, typename A::Methods>;
  return {Table::has_coroutines, Groups::limits, Table::groups, Table::is_stream,
          Table::coroutines};
}

}  // namespace troupe
