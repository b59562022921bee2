#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "runtime/actor/actor_cell.hpp"
#include "runtime/call/unix_transport.hpp"

namespace troupe::test {

using namespace std::chrono_literals;

/// A bound for waits that end at once when all is well; generous, because machines are busy.
inline constexpr auto limit = 20s;

template <class T>  // NOLINTNEXTLINE(performance-unnecessary-value-param): moved from unless void
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

/// Notes of actors and their parts, for the test that waits for them.
class Notes {
 public:
  void add(std::string note) {
    std::lock_guard lock(mutex_);
    notes_.push_back(std::move(note));
    changed_.notify_all();
  }
  std::vector<std::string> all() {
    std::lock_guard lock(mutex_);
    return notes_;
  }
  std::size_t count(const std::string& note) {
    std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::ranges::count(notes_, note));
  }
  bool wait_for(const std::string& note, std::size_t times = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] {
      return static_cast<std::size_t>(std::ranges::count(notes_, note)) >= times;
    });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> notes_;
};

/// Notes its own destruction.
class Guard {
 public:
  Guard(std::shared_ptr<Notes> notes, std::string name)
      : notes_(std::move(notes)), name_(std::move(name)) {}
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() { notes_->add("end of " + name_); }

 private:
  const std::shared_ptr<Notes> notes_;
  const std::string name_;
};

/// A process's worth of services for actors' cells.
class CellHost {
 public:
  explicit CellHost(const CallHub::Options& calls = {}) {
    UnixTransport::Options options;
    Key key{};
    options.keys = call_keys(*JobKeys::from_secret(key),
                             fmt::format("troupe-cells-{}-{}", ::getpid(), (const void*)this));
    auto services = std::make_shared<HostServices>();
    services->node = "here";
    services->hub = *CallHub::create(std::make_unique<UnixTransport>(std::move(options)), calls);
    services->watches = std::make_shared<WatchTable>(
        [](ActorId) -> std::optional<ActorDown> { return std::nullopt; });
    services->threads = std::make_shared<TaskPool>(TaskPool::Options{.name = "cells"});
    services_ = std::move(services);
  }
  ~CellHost() {
    for (const auto& cell : cells_) cell->stop();
    for (const auto& cell : cells_) (void)cell->wait_until_over(limit);
    services_->hub->stop();
    (void)services_->threads->stop(limit);
  }

  /// What is to be called and stopped.
  template <class A>
  struct Hosted {
    std::shared_ptr<ActorCell> cell;
    ActorHandle<A> handle;

    template <auto method, class... Args>
    auto call(Args&&... args) const {
      return handle.template call<method>(std::forward<Args>(args)...);
    }
    void end() const {
      cell->stop();
      if (!cell->wait_until_over(limit)) throw std::runtime_error("the actor does not end");
    }
  };

  struct Options {
    bool dedicated_thread = false;
    int max_concurrency = 0;
  };

  template <class A, class... Args>
  Hosted<A> start(Options options, Args... args) {
    ActorCell::Start start;
    start.address = std::make_shared<const ActorAddress>(
        ActorAddress{next_id_++, services_->hub->endpoint(), "one", std::string(A::actor_type)});
    start.dedicated_thread = options.dedicated_thread;
    start.max_concurrency = options.max_concurrency;
    start.factory = [args...](ActorContext& context) -> Result<std::unique_ptr<ActorObject>> {
      return std::unique_ptr<ActorObject>(
          std::make_unique<actor_detail::TypedActor<A>>(std::make_unique<A>(context, args...)));
    };
    const Promise<void> made;
    start.on_made = [made](Result<void> result) { made.complete(std::move(result)); };
    start.events = std::make_shared<const ActorCell::Events>(
        ActorCell::Events{.on_ended = [](const ActorAddress&, bool, const std::string&) {}});
    ActorHandle<A> handle(start.address, services_->hub);
    auto cell = must(ActorCell::start(std::move(start), services_));
    cells_.push_back(cell);
    must(made.future().get(limit));
    return {std::move(cell), std::move(handle)};
  }

  CallHub& hub() const { return *services_->hub; }

 private:
  std::shared_ptr<const HostServices> services_;
  std::vector<std::shared_ptr<ActorCell>> cells_;
  ActorId next_id_ = 1;
};

/// Keeps calls until the test answers them.
class Gate final : public CallTarget {
 public:
  /// A call keeps what waits for its answer, which keeps the call.
  ~Gate() override {
    for (const IncomingCall& call : calls_) {
      call.answer(fail(ErrorCode::cancelled, "the gate is gone"));
    }
  }
  void deliver(IncomingCall call) override {
    std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    changed_.notify_all();
  }
  bool wait_for_calls(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return calls_.size() >= count; });
  }
  /// Answers the call that came as number `index` with a number.
  void answer(std::size_t index, int value) {
    std::unique_lock lock(mutex_);
    const auto answer = std::exchange(calls_.at(index).answer, CallReply());
    lock.unlock();
    answer(encode(value));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<IncomingCall> calls_;
};

/// The class of a Gate.
class Gated {
 public:
  int pass();
  static constexpr std::string_view actor_type = "Gated";
  using Methods = troupe::Methods<&Gated::pass>;
};

inline ActorHandle<Gated> add_gate(CellHost& host, const std::shared_ptr<Gate>& gate, ActorId id) {
  host.hub().add_target(id, gate);
  return {{id, host.hub().endpoint(), "gate", "Gated"}, host.hub().weak_from_this()};
}

}  // namespace troupe::test
