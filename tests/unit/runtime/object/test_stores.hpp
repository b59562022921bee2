#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "runtime/memory/shared_memory.hpp"
#include "runtime/object/object_store.hpp"
#include "runtime/object/store_messages.hpp"
#include "tests/support/comes_true.hpp"
#include "tests/unit/runtime/call/cuttable_hubs.hpp"

namespace troupe::test {

using Numbers = std::vector<std::uint32_t>;
using Ref = ObjectRef<Numbers>;
constexpr auto limit = 30s;

/// Memory and files of a node for the stores on it.
struct TestNode {
  std::string name = "node0";
  std::uint64_t bytes = std::uint64_t{256} << 20;
  std::string spill_folder{};
  SharedMemory ledger{};  ///< of the first store that asks
};

/// A hub and a store, as each process of a job has them, over real sockets. Takes references that
/// others pass on by calls.
class TestProcess {
 public:
  static std::shared_ptr<TestProcess> start(
      const std::string& name, TestNode& node,
      const std::function<void(ObjectStoreOptions& options)>& change = {}) {
    auto process = std::make_shared<TestProcess>();
    CallHub::Options calls;
    calls.cause_grace = 20ms;
    static std::atomic<ActorId> count = 0;
    process->actor_ = ++count;
    const std::string unique = fmt::format("{}-{}", name, process->actor_);
    process->hub_ = make_cuttable_hub(unique, calls);
    ObjectStoreOptions options;
    options.process_name = name;
    options.node = options.locality = node.name;
    options.address = "127.0.0.1";
    options.keys = call_keys(*JobKeys::from_secret(Key{}),
                             fmt::format("troupe-test-{}-{}", ::getpid(), unique));
    options.node_bytes = node.bytes;
    options.spill_folder = node.spill_folder;
    options.ledger_memory = [&node](std::size_t bytes) -> Result<UniqueFd> {
      if (node.ledger.fd() < 0) {
        TROUPE_TRY(node.ledger, SharedMemory::create(bytes));
      }
      return node.ledger.duplicate_fd();
    };
    options.hold_limit = 500ms;
    if (change) change(options);
    auto store = ObjectStore::start(process->hub_.hub, std::move(options));
    if (!store.ok()) throw std::runtime_error(store.error().message);
    process->store_ = *std::move(store);
    process->hub_.hub->add_target(process->actor_, std::make_shared<Target>(process));
    return process;
  }
  ~TestProcess() { stop(); }

  /// Ends it in order.
  void stop() {
    if (store_) store_->stop();
    die();
  }
  /// Ends it as a kill does: its links end, and nothing is said.
  void die() {
    if (!hub_.hub) return;
    hub_.hub->stop();
    refs.clear();
    views.clear();
    store_->stop();
    store_ = nullptr;
    hub_ = {};
  }
  ObjectStore& store() const { return *store_; }
  CallHub& hub() const { return *hub_.hub; }
  std::weak_ptr<CallHub> weak_hub() const { return hub_.hub; }
  CuttableTransport& transport() const { return *hub_.transport; }

  Result<Ref> put(std::size_t count, std::uint32_t value) {
    return put_object(*store_, Numbers(count, value));
  }
  Result<ObjectView<Numbers>> get(const Ref& ref, std::chrono::nanoseconds timeout = limit) {
    return get_object(*store_, weak_hub(), ref, timeout);
  }
  /// Passes a reference on by a call, and keeps it until the call is answered or fails.
  void pass(const Ref& ref, const TestProcess& to,
            std::function<void(bool is_answered)> done = {}) {
    Encoder encoder;
    encoder(ref);
    auto kept = encoder.take_kept();
    hub_.hub->call({to.actor_, to.store().endpoint(), "test", "Test"}, 0, encoder.take(),
                   [kept = std::move(kept), done = std::move(done)](const Result<Bytes>& answer) {
                     if (done) done(answer.ok());
                   });
  }
  /// From now on the process answers nothing that is asked of its store, as one that is stopped.
  void be_silent() {
    const StoreId id = store_at(store_->endpoint());
    hub_.hub->remove_target(id);
    hub_.hub->add_target(id, std::make_shared<SilentTarget>());
  }
  /// Takes a reference that another process passes on.
  void on_call(const IncomingCall& call) {
    const RegistrationScope registering;
    auto ref = decode<Ref>(call.arguments, weak_hub());
    if (!ref.ok()) return call.answer(ref.error());
    {
      const std::lock_guard lock(mutex_);
      taken_.push_back(*std::move(ref));
    }
    store_->when_registered(registering.open(), [answer = call.answer] { answer(Bytes()); });
  }
  /// The references that have been passed on to it since the last call.
  std::vector<Ref> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(taken_, {});
  }
  /// Waits for one.
  Ref take_one() {
    Deadline deadline(limit);
    while (!deadline.is_over()) {
      if (auto taken = take(); !taken.empty()) return taken.front();
      std::this_thread::sleep_for(1ms);
    }
    throw std::runtime_error("no reference has come");
  }

  std::vector<Ref> refs;
  std::vector<ObjectView<Numbers>> views;

 private:
  /// What the hub keeps of it.
  class Target final : public CallTarget {
   public:
    explicit Target(std::weak_ptr<TestProcess> process) : process_(std::move(process)) {}
    void deliver(IncomingCall call) override {
      if (const auto process = process_.lock()) process->on_call(call);
    }

   private:
    const std::weak_ptr<TestProcess> process_;
  };

  class SilentTarget final : public CallTarget {
   public:
    void deliver(IncomingCall call) override { calls_.push_back(std::move(call)); }

   private:
    std::vector<IncomingCall> calls_;  ///< on the transport's thread
  };

  ActorId actor_ = 0;
  CuttableHub hub_;
  std::shared_ptr<ObjectStore> store_;
  std::mutex mutex_;
  std::vector<Ref> taken_;
};

/// Nothing is left in a store to which nobody has references.
inline bool is_empty(const ObjectStore& store) {
  const ObjectCounts counts = store.counts();
  return counts.owned == 0 && counts.held == 0 && counts.shares == 0 && counts.waits == 0 &&
         counts.holds == 0 && counts.pinned_bytes == 0 && counts.spilled_bytes == 0;
}
inline std::string describe(const ObjectCounts& counts) {
  return fmt::format(
      "owned {}, held {}, shares {}, waits {}, holds {}, pinned bytes {}, spilled bytes {}",
      counts.owned, counts.held, counts.shares, counts.waits, counts.holds, counts.pinned_bytes,
      counts.spilled_bytes);
}

}  // namespace troupe::test
