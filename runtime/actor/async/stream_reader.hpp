#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/actor/async/await.hpp"
#include "runtime/actor/async/stream_inbox.hpp"
#include "runtime/object/reference_scan.hpp"

namespace troupe {

/// Reads the values of a method that returns Stream<T>, as they come:
///
///   auto numbers = handle.call<&A::numbers>(5);
///   while (true) {
///     TROUPE_TRY(const auto number, numbers.next(10s));
///     if (!number) break;
///     use(*number);
///   }
///
/// The method is at most a StreamWindow of 16 items and 1 MiB ahead. Dropping the reader ends the
/// method. Move only; used by one thread at a time.
template <class T>
class StreamReader {
 public:
  explicit StreamReader(std::shared_ptr<StreamInbox> inbox) : inbox_(std::move(inbox)) {}
  /// For StreamInbox::open.
  static StreamInbox::Decode decode_of_items() {
    return may_hold_refs<T>() ? &decode_early : nullptr;
  }
  StreamReader(StreamReader&& other) noexcept = default;
  StreamReader& operator=(StreamReader&& other) noexcept {
    std::swap(inbox_, other.inbox_);
    return *this;
  }
  ~StreamReader() {
    if (inbox_) inbox_->close();
  }

  /// Waits at most `timeout` for the next item; nothing once the stream has ended. Errors: the
  /// method's own, and those of ActorHandle::call, as actor_died, after all items that have come,
  /// and again if it is asked again; timed_out and resource_exhausted (no room on the link), after
  /// which it may be asked again.
  Result<std::optional<T>> next(std::chrono::nanoseconds timeout) {
    return decoded(inbox_->take(timeout));
  }

  class Next final : async_detail::WaiterHolder {
   public:
    explicit Next(StreamReader& reader) : reader_(reader) {}
    bool await_ready() const { return reader_.inbox_->is_ready(); }
    template <std::derived_from<async_detail::PromiseBase> P>
    void await_suspend(std::coroutine_handle<P> waits) {
      reader_.inbox_->on_ready(make_waiter(waits));
    }
    Result<std::optional<T>> await_resume() { return reader_.next(std::chrono::nanoseconds(0)); }

   private:
    StreamReader& reader_;
  };
  /// The same in a coroutine of an actor: `co_await reader.next()`.
  Next next() { return Next(*this); }

 private:
  static std::shared_ptr<void> decode_early(const Bytes& item, const std::weak_ptr<CallHub>& hub) {
    return std::make_shared<Result<T>>(decode<T>(item, hub));
  }
  Result<std::optional<T>> decoded(Result<std::optional<StreamInbox::Item>> item) {
    if (!item.ok()) return std::move(item).error();
    if (!*item) return std::optional<T>();
    if (const auto& early = (*item)->decoded) {
      TROUPE_TRY(auto value, std::move(*std::static_pointer_cast<Result<T>>(early)));
      return std::optional<T>(std::move(value));
    }
    TROUPE_TRY(auto value, decode<T>((*item)->bytes, inbox_->hub()));
    return std::optional<T>(std::move(value));
  }

  std::shared_ptr<StreamInbox> inbox_;
};

}  // namespace troupe
