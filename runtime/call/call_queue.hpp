#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/call/incoming_call.hpp"

namespace troupe {

/// Calls that wait for their turn, in the order in which they came. A cancelled one is taken out in
/// constant time, however many there are, and so is the next one (both on average: places of calls
/// that were taken out are closed up when there are as many as calls). A call knows its place by
/// its target_id, so it is in one queue at a time. Not synchronised.
template <class Call = IncomingCall>
  requires std::movable<Call> && requires(Call call) {
    { call.cancel } -> std::same_as<CancelToken&>;
  }
class CallQueue {
 public:
  CallQueue() = default;
  CallQueue(CallQueue&& other) noexcept { swap(other); }
  CallQueue& operator=(CallQueue&& other) noexcept {
    CallQueue(std::move(other)).swap(*this);
    return *this;
  }

  bool empty() const { return calls_ == 0; }
  std::size_t size() const { return calls_; }
  /// The calls that there is memory for.
  std::size_t capacity() const { return places_.capacity(); }

  void push(Call&& call) {
    if (places_.size() == places_.capacity() && calls_ < places_.size() / 2) close_up();
    places_.emplace_back(std::move(call));
    number(places_.size() - 1);
    ++calls_;
  }
  /// Takes the next one out; there is one.
  Call pop() {
    while (!places_[next_]) ++next_;
    return take_at(next_++);
  }
  /// Takes the call of this token out; nothing if it is not here.
  std::optional<Call> take(const CancelToken& cancelled) {
    if (cancelled.state() == nullptr) return std::nullopt;
    const std::uint64_t id = cancelled.state()->target_id();
    if (id == 0 || id > places_.size()) return std::nullopt;
    const auto& there = places_[id - 1];
    // It may be that of another queue, where it is now.
    if (!there || there->cancel != cancelled) return std::nullopt;
    return take_at(id - 1);
  }
  /// Takes all of them out, in order.
  std::vector<Call> take_all() {
    std::vector<Call> all;
    all.reserve(calls_);
    while (!empty()) all.push_back(pop());
    return all;
  }
  void swap(CallQueue& other) noexcept {
    places_.swap(other.places_);
    std::swap(next_, other.next_);
    std::swap(calls_, other.calls_);
  }

 private:
  /// More memory is not kept while there are no calls.
  static constexpr std::size_t kept = 1024;
  using Places = std::vector<std::optional<Call>>;

  Call take_at(std::size_t place) {
    Call call = *std::move(places_[place]);
    places_[place].reset();
    if (--calls_ > 0) return call;
    places_.clear();
    next_ = 0;
    if (places_.capacity() > kept) Places().swap(places_);
    return call;
  }
  void number(std::size_t place) {
    const auto& state = places_[place]->cancel.state();
    if (state) state->set_target_id_locked(place + 1);
  }
  void close_up() {
    std::size_t free = 0;
    for (std::size_t place = next_; place < places_.size(); ++place) {
      if (!places_[place]) continue;
      if (free != place) places_[free] = std::exchange(places_[place], std::nullopt);
      number(free++);
    }
    places_.resize(free);
    next_ = 0;
  }

  Places places_;
  // Small, as there are many actors that wait.
  std::uint32_t next_ = 0;  ///< no call has an earlier place
  std::uint32_t calls_ = 0;
};

}  // namespace troupe
