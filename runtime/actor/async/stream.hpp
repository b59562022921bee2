#pragma once

#include <coroutine>
#include <utility>

#include "runtime/actor/async/async.hpp"
#include "runtime/actor/async/stream_outlet.hpp"
#include "runtime/call/encode_answer.hpp"
#include "runtime/object/reference_scan.hpp"

namespace troupe {

template <class T>
class Stream;

namespace async_detail {

/// `co_yield`: goes on at once if the stream's window has room.
struct YieldAwaiter {
  StreamOutlet& outlet;
  bool await_ready() const { return !outlet.is_finished() && outlet.has_room(); }
  void await_suspend(std::coroutine_handle<> producer) const { outlet.park(producer); }
  void await_resume() const {}
};

template <class T>
class StreamPromise final : public PromiseBase {
 public:
  Stream<T> get_return_object() {
    return Stream<T>(std::coroutine_handle<StreamPromise>::from_promise(*this));
  }
  YieldAwaiter yield_value(const T& item) {
    if (may_hold_refs<T>()) {
      outlet->put(encode(item),
                  [item](const std::weak_ptr<CallHub>& hub) { return encode_answer(item, hub); });
    } else {
      outlet->put(encode(item));
    }
    return {*outlet};
  }
  YieldAwaiter yield_value(Error error) {
    outlet->finish(std::move(error));
    return {*outlet};
  }
  YieldAwaiter yield_value(Result<T> item) {
    if (!item.ok()) return yield_value(std::move(item).error());
    return yield_value(*item);
  }
  void return_void() { outlet->finish({}); }
  void unhandled_exception() noexcept {
    outlet->finish(
        fail(ErrorCode::exception, "a stream threw {}", current_exception_description()));
  }

  StreamOutlet* outlet = nullptr;  ///< set before it is started
};

}  // namespace async_detail

/// What a method returns that answers with many values, one after the other:
///
///   Stream<int> numbers(int count) {
///     for (int i = 0; i < count; ++i) co_yield i;
///   }
///
/// Its callers get a StreamReader<T> from `call`. The method runs when it is called, and is at most
/// a StreamWindow ahead of its reader: then it waits in co_yield, while other methods run. It may
/// co_await like an Async, and what is said there of threads, ends and arguments is true here too.
/// `co_yield` takes a T, a Result<T> or an Error; an error, and an exception that leaves the
/// method, ends the stream with it. When the reader is dropped, its process ends or its actor does,
/// the method is destroyed where it waits.
///
/// T must be encodable; vectors of std::byte or numbers are copied as blocks. References to objects
/// (ObjectRef) in an item are the stream's until the reader's process has them, as soon as the item
/// is there, and are given back if the stream ends before. Move only.
template <class T>
class [[nodiscard]] Stream {
 public:
  using promise_type = async_detail::StreamPromise<T>;
  using Value = T;
  using Handle = std::coroutine_handle<promise_type>;

  explicit Stream(Handle handle) : handle_(handle) {}
  Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Stream() {
    if (handle_) handle_.destroy();
  }

  /// For the runtime: the coroutine.
  Handle handle() const { return handle_; }

 private:
  Handle handle_;
};

}  // namespace troupe
