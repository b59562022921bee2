#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "runtime/actor/cluster.hpp"

namespace troupe::test {

using namespace std::chrono_literals;

/// A bound for waits that end at once when all is well; generous, because machines are busy.
inline constexpr auto limit = 20s;

class Member {
 public:
  static Result<std::unique_ptr<Member>> create(ActorContext& context, int start) {
    if (start < 0) return fail(ErrorCode::invalid_argument, "begins below zero");
    return std::make_unique<Member>(context, start);
  }
  Member(ActorContext& context, int start) : context_(context), value_(start) {}

  int add(int amount) { return value_ += amount; }
  /// Appends and returns all; the caller's vector stays as it is.
  std::vector<int> append(std::vector<int> numbers, int number) {
    numbers.push_back(number);
    return numbers;
  }
  void record(int number) { recorded_.push_back(number); }
  std::vector<int> recorded() { return recorded_; }
  Result<int> refuse() { return fail(ErrorCode::unsupported, "on purpose"); }
  int throw_something() { throw std::runtime_error("thrown on purpose"); }
  std::string node() { return context_.node(); }
  std::vector<int> devices() { return context_.device_ids(); }
  int pid() { return ::getpid(); }
  void leave(const std::string& reason) { context_.exit(reason); }
  Result<int> add_to(const ActorHandle<Member>& other, int amount) {
    return other.call<&Member::add>(amount).get(limit);
  }
  Result<int> add_by_name(const std::string& name, int amount) {
    TROUPE_TRY(const auto other, context_.find<Member>(name));
    return add_to(other, amount);
  }
  void sleep_for_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
  Result<int> share(const std::string& name, int value) {
    TROUPE_TRY(const auto fd, context_.shared_memory(name, 4096));
    int before = 0;
    if (::pread(fd.get(), &before, sizeof before, 0) != sizeof before ||
        ::pwrite(fd.get(), &value, sizeof value, 0) != sizeof value) {
      return fail(ErrorCode::io, "shared memory cannot be used");
    }
    return before;
  }

  static constexpr std::string_view actor_type = "Member";
  using Methods = troupe::Methods<&Member::add, &Member::append, &Member::record, &Member::recorded,
                                  &Member::refuse, &Member::throw_something, &Member::node,
                                  &Member::devices, &Member::pid, &Member::leave, &Member::add_to,
                                  &Member::add_by_name, &Member::sleep_for_ms, &Member::share>;

 private:
  ActorContext& context_;
  int value_;
  std::vector<int> recorded_;
};

/// Owns another actor.
class Owner {
 public:
  explicit Owner(ActorContext& context) : context_(context) {}
  Result<ActorHandle<Member>> spawn_member(const std::string& name) {
    return context_.spawn<Member>({.name = name}, 1).get(limit);
  }
  static constexpr std::string_view actor_type = "Owner";
  using Methods = troupe::Methods<&Owner::spawn_member>;

 private:
  ActorContext& context_;
};

template <class T>  // NOLINTNEXTLINE(performance-unnecessary-value-param): moved from unless void
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

}  // namespace troupe::test
