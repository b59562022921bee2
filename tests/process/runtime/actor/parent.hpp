#pragma once

#include "tests/process/runtime/actor/test_actors.hpp"

namespace troupe::test {

/// Spawns other actors and owns them.
class Parent {
 public:
  explicit Parent(ActorContext& context) : context_(context) {}

  Result<ActorHandle<Counter>> spawn_counter(const std::string& name, int start, bool is_detached,
                                             int max_restarts) {
    return context_
        .spawn<Counter>({.name = name, .max_restarts = max_restarts, .is_detached = is_detached},
                        start)
        .get(limit);
  }
  Result<ActorHandle<Counter>> spawn_in(const std::string& name_space, const std::string& name) {
    return context_.spawn<Counter>({.name = name, .max_restarts = 1, .name_space = name_space}, 7)
        .get(limit);
  }
  Result<ActorHandle<Counter>> spawn_with(int devices) {
    return context_.spawn<Counter>({.resources = {.devices = devices}}, 0).get(limit);
  }
  Result<ActorHandle<Counter>> spawn_beside(const std::string& process) {
    return context_.spawn<Counter>({.process = process}, 0).get(limit);
  }
  Result<ActorHandle<Parent>> spawn_parent() { return context_.spawn<Parent>({}).get(limit); }
  Result<ActorHandle<Fragile>> spawn_fragile(const std::string& why_not) {
    return context_.spawn<Fragile>({}, why_not).get(limit);
  }
  void stop(const ActorHandle<Counter>& counter) { context_.stop(counter); }
  int pid() { return ::getpid(); }
  void leave() { context_.exit("had enough"); }

  static constexpr std::string_view actor_type = "Parent";
  using Methods =
      troupe::Methods<&Parent::spawn_counter, &Parent::spawn_in, &Parent::spawn_with,
                      &Parent::spawn_beside, &Parent::spawn_parent, &Parent::spawn_fragile,
                      &Parent::stop, &Parent::pid, &Parent::leave>;

 private:
  ActorContext& context_;
};

}  // namespace troupe::test
