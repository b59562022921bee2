#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "runtime/actor/actor_context.hpp"
#include "runtime/call/future.hpp"
#include "runtime/control/messages.hpp"

namespace troupe {

/// What an actor process asks its agent for, or by way of it the driver, and the answers. Callable
/// from any thread.
class AgentRequests {
 public:
  /// Sends a message to the agent, from any thread.
  using Tell = std::function<void(const ControlMessage&)>;
  /// `limit`: for the answers that somebody waits for.
  explicit AgentRequests(Tell tell, std::chrono::milliseconds limit = std::chrono::seconds(5))
      : tell_(std::move(tell)), limit_(limit) {}

  /// See ActorContext::shared_memory. Waits.
  Result<UniqueFd> region(std::string_view name, std::size_t bytes) {
    return ask_region(name, bytes, false);
  }
  /// See ActorContext::release_shared_memory. Waits.
  Result<void> release_regions(std::string_view prefix);
  /// See ActorContext::channel_key. Waits.
  Result<Key> channel_key(ActorId asker, const ChannelScope& scope);
  /// See CallKeys::ask.
  void call_key(const std::string& listener, CallKeys::Answer answer);
  /// See ActorContext::spawn. `done` is called once, unless the process ends before.
  using OnSpawned = std::function<void(Result<ActorAddress>)>;
  void spawn(ActorId owner, const SpawnOptions& options, std::string type,
             EncodedArguments arguments, OnSpawned done);

  // Answers; to others than these requests they are ignored.

  void on_reply(const RegionReply& reply, UniqueFd fd);
  void on_reply(const KeyReply& reply);
  void on_reply(const SpawnReply& reply);

 private:
  template <class Waiting>
  using Open = std::map<std::uint64_t, Waiting>;
  /// Keeps who waits for an answer, and returns the number of the request.
  template <class Waiting>
  std::uint64_t add(Open<Waiting>& open, Waiting waiting) {
    const std::lock_guard lock(mutex_);
    open.emplace(next_, std::move(waiting));
    return next_++;
  }
  template <class Waiting>
  typename Open<Waiting>::node_type take(Open<Waiting>& open, std::uint64_t request) {
    const std::lock_guard lock(mutex_);
    return open.extract(request);
  }
  Result<UniqueFd> ask_region(std::string_view name, std::size_t bytes, bool release);

  const Tell tell_;
  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  Open<Promise<UniqueFd>> regions_;
  Open<Promise<Key>> keys_;
  Open<OnSpawned> spawns_;
  std::uint64_t next_ = 1;
};

}  // namespace troupe
