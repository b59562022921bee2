#pragma once

#include <chrono>
#include <memory>

#include "runtime/call/future.hpp"
#include "runtime/link/link.hpp"
#include "runtime/state/cluster_file.hpp"
#include "runtime/state/messages.hpp"

namespace troupe {

/// The observer's end of a link to a driver. Callable from any thread.
class StateClient {
 public:
  /// Begins to connect and returns at once; how that went is seen from the first answer. Errors:
  /// unsupported for a driver of another protocol; not_found, io.
  static Result<std::unique_ptr<StateClient>> begin(LinkLoop& loop, const ClusterFile& cluster);
  ~StateClient();  ///< closes the link

  /// Asks and returns at once; ask again once the answer is there. Errors of the future: what the
  /// driver says (StateRefusal), permission_denied if it has another key, peer_died, timeout (no
  /// handshake), io.
  Future<StateReply> ask(const StateRequest& request);
  /// The same, waiting at most `timeout`. internal if the answer is not a `Reply`.
  template <class Reply>
  Result<Reply> get(const StateRequest& request, std::chrono::milliseconds timeout) {
    TROUPE_TRY(auto reply, ask(request).get(timeout));
    if (auto* of_type = std::get_if<Reply>(&reply)) return std::move(*of_type);
    return fail(ErrorCode::internal, "the driver gave another answer than was asked for");
  }
  /// Waits until the driver has closed the link; false if it has not within `timeout`.
  bool wait_until_closed(std::chrono::milliseconds timeout);

 private:
  struct State;
  explicit StateClient(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;  ///< shared with the link's events
};

}  // namespace troupe
