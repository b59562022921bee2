#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_down.hpp"
#include "runtime/actor/directory.hpp"
#include "runtime/actor/watch_table.hpp"
#include "runtime/base/task_pool.hpp"
#include "runtime/call/call_hub.hpp"
#include "runtime/link/port_range.hpp"
#include "runtime/object/object_store.hpp"

namespace troupe {

/// How many idle actors of a process may keep the room that their mailboxes have had, so that the
/// next call need not allocate it: those that are called most are mostly among the first. Callable
/// from any thread.
class MailboxRooms {
 public:
  static constexpr int most = 512;

  /// True if one more may.
  bool take() {
    if (taken_.load(std::memory_order_relaxed) >= most) return false;
    if (taken_.fetch_add(1, std::memory_order_relaxed) < most) return true;
    give_back();
    return false;
  }
  void give_back() { taken_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  std::atomic<int> taken_ = 0;
};

/// The services that all actors of one process share.
struct HostServices {
  std::string node;
  std::string node_address;
  PortRange ports;
  std::string job_folder;
  std::string log_path;
  /// See ActorContext::channel_key.
  std::function<Result<Key>(const ActorAddress& asker, const ChannelScope& scope)> channel_key;
  std::shared_ptr<CallHub> hub;
  std::shared_ptr<WatchTable> watches;
  ActorHandle<Directory> directory;
  /// See ActorContext::shared_memory.
  std::function<Result<UniqueFd>(std::string_view name, std::size_t bytes)> shared_memory;
  std::function<Result<void>(std::string_view prefix)> release_shared_memory;
  /// See ActorContext::spawn. `done` is called once, unless this process ends before.
  std::function<void(ActorId owner, const SpawnOptions& options, std::string type,
                     EncodedArguments arguments, std::function<void(Result<ActorAddress>)> done)>
      spawn;
  /// See ActorContext::stop.
  std::function<void(ActorId owner, ActorId actor)> stop;
  /// For actors without a thread of their own.
  std::shared_ptr<TaskPool> threads;
  /// See ActorContext::submit. `done` is called once.
  SendTask submit_task;
  /// See ActorContext::put. Set before the first actor.
  std::shared_ptr<ObjectStore> objects{};
  std::shared_ptr<MailboxRooms> mailbox_rooms = std::make_shared<MailboxRooms>();

  /// Answers a call. The caller keeps the references to objects among its arguments until then: so
  /// it waits until these, which were not yet as they were decoded, are registered with their
  /// owners.
  void answer(const CallReply& reply, CallAnswer answer, const Registrations& registrations) const;

  /// Tells the callers and the watchers in this process.
  void report_end(const ActorDown& down) const;
};

}  // namespace troupe
