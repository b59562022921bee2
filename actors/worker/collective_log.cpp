#include "actors/worker/collective_log.hpp"

#include <iterator>
#include <utility>

namespace troupe {
namespace {

/// Counts a message with `peer`, and returns its place; -1 if there is none, so that the call
/// fails.
int count(std::vector<std::uint64_t>& calls, int peer) {
  if (peer < 0 || peer >= std::ssize(calls)) return -1;
  ++calls[static_cast<std::size_t>(peer)];
  return peer;
}

}  // namespace

CollectiveLog::CollectiveLog(std::string group, std::vector<int> ranks) {
  state_.group = std::move(group);
  state_.ranks.assign(ranks.begin(), ranks.end());
  state_.sends.resize(ranks.size());
  state_.receives.resize(ranks.size());
}

void CollectiveLog::note(std::string_view op, std::uint64_t bytes, int peer) {
  op_ = op;
  state_.bytes = bytes;
  state_.peer = peer;
  state_.is_inside = true;
  changed_ = Clock::now();
}

void CollectiveLog::begin(std::string_view op, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  ++state_.calls;
  note(op, bytes, -1);
}

void CollectiveLog::begin_send(std::uint64_t bytes, int peer) {
  const std::lock_guard lock(mutex_);
  note("send", bytes, count(state_.sends, peer));
}

void CollectiveLog::begin_receive(std::uint64_t bytes, int peer) {
  const std::lock_guard lock(mutex_);
  note("receive", bytes, count(state_.receives, peer));
}

void CollectiveLog::end() {
  const std::lock_guard lock(mutex_);
  state_.is_inside = false;
  changed_ = Clock::now();
}

void CollectiveLog::restart() {
  const std::lock_guard lock(mutex_);
  state_.calls = 0;
  state_.sends.assign(state_.sends.size(), 0);
  state_.receives.assign(state_.receives.size(), 0);
  state_.is_inside = false;
  op_ = {};
}

CollectiveState CollectiveLog::state() const {
  const std::lock_guard lock(mutex_);
  CollectiveState state = state_;
  state.op = op_;
  const auto since = Clock::now() - changed_;
  state.since_us = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(since).count());
  return state;
}

}  // namespace troupe
