#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/actor/async/stream_protocol.hpp"
#include "runtime/call/actor_address.hpp"
#include "runtime/call/call_hub.hpp"

namespace troupe {

/// The reading end of a stream, without its type: the items that have come and were not taken.
/// Asks the actor for more when half of the window has been read since it asked last, or nothing is
/// left. Callable from any thread; answers come in on any.
class StreamInbox final : public std::enable_shared_from_this<StreamInbox> {
 public:
  struct Item {
    Bytes bytes;
    std::shared_ptr<void> decoded{};  ///< by Decode
  };
  /// Decodes items as they come: of a type with references to objects, which become this process's
  /// then.
  using Decode = std::shared_ptr<void> (*)(const Bytes& item, const std::weak_ptr<CallHub>& hub);

  /// Opens a stream by calling method number `method`; `arguments` are the encoded ones, and `kept`
  /// what is to live until they are taken (Encoder::take_kept).
  static std::shared_ptr<StreamInbox> open(const std::shared_ptr<CallHub>& hub, ActorAddress actor,
                                           std::uint16_t method, const Bytes& arguments,
                                           std::vector<std::shared_ptr<const void>> kept = {},
                                           Decode decode = nullptr, StreamWindow window = {});
  /// A stream that has failed from the start.
  explicit StreamInbox(Error error);
  StreamInbox(const std::shared_ptr<CallHub>& hub, ActorAddress actor, Decode decode,
              StreamWindow window);

  /// Waits at most `timeout` for the next item; nothing at the end. See StreamReader::next.
  Result<std::optional<Item>> take(std::chrono::nanoseconds timeout);
  /// True if `take` returns at once.
  bool is_ready();
  /// Has `listener->run_due()` called once, as soon as is_ready(): on the thread that brings the
  /// item, or at once. One listener at a time.
  void on_ready(std::shared_ptr<DueCallback> listener);
  /// Ends the producer, unless the stream has ended. Never blocks.
  void close();
  const std::weak_ptr<CallHub>& hub() const { return hub_; }

 private:
  void on_answer(Result<Bytes> answer);
  /// Asks for more if that is due; `lock` is held and released.
  void pull_if_due(std::unique_lock<std::mutex> lock);
  bool is_ready_locked() const { return !items_.empty() || end_ || problem_; }
  static void send_close(const std::weak_ptr<CallHub>& hub, const ActorAddress& actor, StreamId id,
                         std::chrono::milliseconds again_after);

  const std::weak_ptr<CallHub> hub_;
  const ActorAddress actor_;
  const Decode decode_ = nullptr;
  const StreamWindow window_;
  StreamId id_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::uint64_t read_ = 0;       ///< items that were taken
  std::uint64_t told_read_ = 0;  ///< read_ when more was asked for last
  bool is_asking_ = false;       ///< a call is unanswered
  bool is_closed_ = false;
  std::optional<Result<void>> end_;
  std::optional<Error> problem_;  ///< of a pull that was not sent; it is tried again
  std::shared_ptr<DueCallback> listener_;
};

}  // namespace troupe
