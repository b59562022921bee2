#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <unistd.h>

#include "runtime/call/call_hub.hpp"
#include "runtime/call/future.hpp"
#include "runtime/call/unix_transport.hpp"

namespace troupe {

using namespace std::chrono_literals;

/// Answers every call with its own arguments, at once.
class Mirror final : public CallTarget {
 public:
  void deliver(IncomingCall call) override { call.answer(std::move(call.arguments)); }
};

/// Keeps a call until the test answers it.
class Holder final : public CallTarget {
 public:
  void deliver(IncomingCall call) override { held_.complete(std::move(call)); }
  void drop(const CancelToken& /*cancelled*/) override { was_dropped_ = true; }
  IncomingCall take() { return *held_.future().get(10s); }
  /// It was told to drop a call.
  bool was_dropped() const { return was_dropped_; }

 private:
  std::atomic<bool> was_dropped_ = false;
  Promise<IncomingCall> held_;
};

inline std::shared_ptr<CallHub> make_hub(const std::string& name, const Key& key,
                                         const Identity& identity = {},
                                         const CallHub::Options& calls = {},
                                         UnixTransport::Options options = {}) {
  options.keys =
      call_keys(*JobKeys::from_secret(key), fmt::format("troupe-test-{}-{}", ::getpid(), name));
  options.identity = identity;
  return *CallHub::create(std::make_unique<UnixTransport>(std::move(options)), calls);
}

inline Future<Bytes> begin_call(CallHub& hub, const std::string& endpoint, ActorId id,
                                Bytes arguments) {
  Promise<Bytes> promise;
  hub.call({id, endpoint, "mirror", "Mirror"}, 0, std::move(arguments),
           [promise](Result<Bytes> answer) { promise.complete(std::move(answer)); });
  return promise.future();
}

inline Result<Bytes> call(CallHub& hub, const std::string& endpoint, ActorId id, Bytes arguments) {
  return begin_call(hub, endpoint, id, std::move(arguments)).get(10s);
}

}  // namespace troupe
