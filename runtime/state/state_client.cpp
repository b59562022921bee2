#include "runtime/state/state_client.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>

#include "runtime/base/deadline.hpp"

namespace troupe {

struct StateClient::State {
  std::shared_ptr<TlsLink> link;  ///< set before anybody else has the state
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Promise<StateReply>> asked;
  std::optional<Error> over;

  void complete(Result<StateReply> reply) {
    std::optional<Promise<StateReply>> promise;
    {
      std::lock_guard lock(mutex);
      promise.swap(asked);
    }
    if (promise) promise->complete(std::move(reply));
  }
  void on_frame(std::span<const std::byte> frame) {
    auto reply = decode_reply(frame);
    if (reply.ok()) {
      if (const auto* refusal = std::get_if<StateRefusal>(&*reply)) {
        return complete(Error{refusal->code, refusal->message});
      }
    }
    complete(std::move(reply));
  }
  void on_closed(const Error& why) {
    {
      std::lock_guard lock(mutex);
      over = why;
      changed.notify_all();
    }
    complete(why);
  }
};

Result<std::unique_ptr<StateClient>> StateClient::begin(LinkLoop& loop,
                                                        const ClusterFile& cluster) {
  if (cluster.protocol != state_protocol) {
    return fail(ErrorCode::unsupported,
                "it is of another version (state protocol {}, this program has {}): use the "
                "troupe program beside {}",
                cluster.protocol, state_protocol, cluster.program);
  }
  auto state = std::make_shared<State>();
  LinkEvents events{
      [](const std::shared_ptr<TlsLink>&) {},
      [state](const std::shared_ptr<TlsLink>&, std::vector<std::byte>& frame) {
        state->on_frame(frame);
      },
      [state](const std::shared_ptr<TlsLink>&, const Error& why) { state->on_closed(why); }};
  TROUPE_TRY(auto link, loop.connect(cluster.address, cluster.port, {observer_role, observer_name},
                                     {"driver", "job"}, cluster.key.bytes, std::move(events)));
  state->link = std::move(link);
  return std::unique_ptr<StateClient>(new StateClient(std::move(state)));
}

StateClient::~StateClient() {
  state_->link->close();
  state_->link.reset();  // its events hold the state
}

Future<StateReply> StateClient::ask(const StateRequest& request) {
  Promise<StateReply> promise;
  auto answer = promise.future();
  {
    std::lock_guard lock(state_->mutex);
    if (state_->over) return Future<StateReply>(*state_->over);
    state_->asked = std::move(promise);
  }
  if (auto sent = state_->link->send(LinkFrame(encode_request(request))); !sent.ok()) {
    state_->complete(std::move(sent).error());
  }
  return answer;
}

bool StateClient::wait_until_closed(std::chrono::milliseconds timeout) {
  std::unique_lock lock(state_->mutex);
  return wait_for(state_->changed, lock, timeout, [this] { return state_->over.has_value(); });
}

}  // namespace troupe
