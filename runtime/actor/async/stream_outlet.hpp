#pragma once

#include <coroutine>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/actor/async/stream_protocol.hpp"
#include "runtime/call/call_hub.hpp"

namespace troupe {

/// The producing end of a stream: the items that its reader has not taken yet, as far as is known
/// here. Used on the actor's thread.
class StreamOutlet {
 public:
  /// Encodes an item once it is sent, as an answer: references to objects in it live until the
  /// reader has them.
  using Encode = std::function<Bytes(const std::weak_ptr<CallHub>& hub)>;

  StreamOutlet(const StreamOpen& open, std::weak_ptr<CallHub> hub)
      : id_(open.id), window_(open.window), hub_(std::move(hub)) {}

  StreamId id() const { return id_; }
  /// True if the producer may go on.
  bool has_room() const { return unread_.size() < window_.items && unread_bytes_ < window_.bytes; }
  /// Adds an item, and answers the pull that waits for it. With `encode`, which keeps the item's
  /// references until then, the item is sent as that encodes it.
  void put(Bytes item, Encode encode = nullptr);
  /// Nothing follows.
  void finish(Result<void> how);
  bool is_finished() const { return end_.has_value(); }
  /// True once the reader has been sent all, with the end.
  bool is_delivered() const { return is_delivered_; }

  /// The producer waits until there is room.
  void park(std::coroutine_handle<> producer) { parked_ = producer; }
  /// The producer that waits, if there is room for it now.
  std::coroutine_handle<> take_parked();

  /// The reader has taken `read` items so far and asks for more: answered at once if there are
  /// some. One pull waits at a time; another one takes its place, which is answered with an error.
  void pull(std::uint64_t read, CallReply answer);
  /// Answers a pull that waits.
  void refuse(const Error& why);

 private:
  /// Answers the pull that waits, if there is something for it.
  void send();

  const StreamId id_;
  const StreamWindow window_;
  const std::weak_ptr<CallHub> hub_;
  struct Ready {
    Bytes bytes;
    Encode encode;
  };
  std::deque<Ready> ready_;         ///< items to be sent
  std::deque<std::size_t> unread_;  ///< bytes of the items that the reader has not taken
  std::size_t unread_bytes_ = 0;
  std::uint64_t read_ = 0;  ///< items that the reader has taken
  CallReply waiting_;
  std::coroutine_handle<> parked_;
  std::optional<Result<void>> end_;
  bool is_delivered_ = false;
};

}  // namespace troupe
